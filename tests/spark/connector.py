"""The jars of Spark's own Kafka connector, fetched by Maven once, into the folder that holds Kafka's."""

import fcntl
import os
import subprocess
from pathlib import Path

SPARK_VERSION = "4.2.0"
FIRST_MS = 1_700_000_000_000
"""The first timestamp of the topic that both connectors read side by side."""

# The connector's own dependencies, each resolved alone: Spark's parent POM names a mirror that is not everywhere.
ARTIFACTS = [
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]


def connector_jars() -> str:
    """The jars of Spark's connector, fetched once."""
    clone = Path(__file__).resolve().parents[2]
    cache = Path(os.environ.get("MAINSTEM_KAFKA_CACHE") or clone / ".kafka") / f"spark-connector-{SPARK_VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "fetching", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for artifact in ARTIFACTS:
            _, name, version = artifact.split(":")
            if not (cache / f"{name}-{version}.jar").exists():
                command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=600)
                if done.returncode:
                    raise RuntimeError(f"Maven cannot fetch {artifact}: {done.stdout[-500:]}")
    return ",".join(str(jar) for jar in sorted(cache.glob("*.jar")))
