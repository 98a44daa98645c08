"""What Spark's own Kafka connector does with a broker: batch read, batch write, stream; run as a process of its own.

    python -m tests.spark.jobs.connector BOOTSTRAP SOURCE TARGET COPY HOME JARS

Prints one JSON object with what it counted.
"""

import json
import sys

from pyspark.sql import SparkSession

from tests.spark import quick


def main() -> None:
    bootstrap, source, target, copied, home, jars = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", quick.JAVA)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("includeHeaders", "true")
    read = reader.option("subscribe", source).load()
    found = {"read": read.count(), "distinct": read.select("partition", "offset").distinct().count()}
    spark.range(1000).selectExpr("cast(id as string) key", "cast(id as string) value").write.format("kafka").option(
        "kafka.bootstrap.servers", bootstrap
    ).option("topic", target).save()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", copied)
        .option("checkpointLocation", home)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["batches"] = len(query.recentProgress)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
