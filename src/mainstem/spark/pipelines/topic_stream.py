"""How a pipeline reads its topic as a stream: what is committed, from the beginning, in batches of a bounded size.

A batch that takes longer than brokers let a transaction be open can never be written, and a checkpoint plans it no
smaller the next time. So that a long backlog is no such batch, each has at most `BATCH_RECORDS` and about
`BATCH_BYTES`, which is a matter of seconds, unless a pipeline is told otherwise or has a watermark (`Transform`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

BATCH_RECORDS: Final = 1_000_000
BATCH_BYTES: Final = 256 << 20
NO_BOUND: Final = 0


def topic_stream(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    max_records: int | None = None,
    accept_data_loss: bool = False,
    starting_offsets: str = "earliest",
) -> DataStreamReader:
    """`max_records` is the most that a batch has: the bounds above where None, and none at all where `NO_BOUND`."""
    reader = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", starting_offsets)
        .option("failOnDataLoss", not accept_data_loss)
        .option("kafka.isolation.level", "read_committed")
    )
    if max_records is None:
        return reader.option("maxOffsetsPerTrigger", BATCH_RECORDS).option("maxBytesPerTrigger", BATCH_BYTES)
    return reader if max_records == NO_BOUND else reader.option("maxOffsetsPerTrigger", max_records)


def check_max_records(given: int | None) -> None:
    if given is not None and given < NO_BOUND:
        raise ValueError(f"max_offsets_per_trigger: must be 1 or more, or 0 for no bound; it is {given}")
