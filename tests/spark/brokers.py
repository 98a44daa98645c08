"""A broker as the tests of Spark see it: topics, records in, records out, by a client that is not ours."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.kafka import KafkaNode

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Read:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None


@dataclass(frozen=True)
class Broker:
    kind: str
    bootstrap: str
    data: Path

    def topic(self, partitions: int = 3, config: dict[str, str] | None = None) -> str:
        """A new one."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        # Tests give records timestamps long past, and a slow machine gives retention the time to come by.
        self.make_topic(name, partitions, {"retention.ms": "-1", **(config or {})})
        return name

    def make_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_topics([NewTopic(name, partitions, 1, config=config or {})]).values():
            done.result(30)

    def make_anew(self, topic: str, partitions: int) -> None:
        """Deletes it and makes another of that name, as soon as the broker lets one."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.make_topic(topic, partitions, {"retention.ms": "-1"})
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.2)

    def log_dir(self, topic: str) -> Path:
        """Where it keeps the topic: ours may have the directory of logs in its data directory."""
        (found,) = self.data.rglob(f"{topic}-0")
        return found.parent

    def grow(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_partitions([NewPartitions(topic, partitions)]).values():
            done.result(30)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int = -1,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Headers | None] | None = None,
        **config: object,
    ) -> None:
        options = {name.replace("_", "."): value for name, value in config.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap, **options})
        for nth, value in enumerate(values):
            producer.produce(
                topic,
                value,
                keys[nth] if keys else None,
                partition,
                timestamp=timestamps[nth] if timestamps else 0,
                headers=headers[nth] if headers else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str, *, committed: bool = True) -> list[Read]:
        """Everything that is there now, by partition and offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        found: list[Read] = []
        ended: set[int] = set()
        while len(ended) < count:
            message = consumer.poll(30)
            assert message is not None, f"{topic} does not come to its end"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            found.append(
                Read(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    message.headers(),
                )
            )
        consumer.close()
        return sorted(found, key=lambda each: (each.partition, each.offset))

    def values(self, topic: str) -> list[bytes]:
        """The values that are committed, sorted."""
        return sorted(each.value or b"" for each in self.read(topic))

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=30)
        consumer.close()
        return {each.partition: each.offset for each in found}


class SteadyKafka(KafkaNode):
    """Kafka that keeps its ports when it is started again."""

    def start(self) -> None:
        self._is_prepared = self._config.exists()
        super().start()
