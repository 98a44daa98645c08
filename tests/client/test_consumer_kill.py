"""kill -9 of the broker, again and again: a consumer reads everything once and in order, alone and in a group."""

import os
import threading
import time
from pathlib import Path

import pytest

import mainstem
from mainstem.client.errors import KafkaError
from mainstem.client.types import TopicPartition
from tests.client.consumer_support import Target
from tests.support.node import Node

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("MAINSTEM_KILLS", "30"))
PARTITIONS = 3
TOPIC = "killed"
CATCH_UP_S = 120.0
QUICK = {
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
}


class Writes(threading.Thread):
    """Numbers what it sends to each partition, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.sent = [0] * PARTITIONS
        self.failed: list[BaseException] = []
        self._address = bootstrap
        self._stopping = threading.Event()

    def run(self) -> None:
        with mainstem.Producer(bootstrap_servers=self._address, **QUICK) as producer:
            futures = []
            while not self._stopping.is_set():
                for partition in range(PARTITIONS):
                    value = b"%d" % self.sent[partition]
                    futures.append(producer.send(TOPIC, value=value, partition=partition))
                    self.sent[partition] += 1
                time.sleep(0.001)
            producer.flush()
            self.failed = [error for error in (future.exception(60) for future in futures) if error is not None]

    def stop(self) -> None:
        self._stopping.set()
        self.join(CATCH_UP_S)


class Reads(threading.Thread):
    """Reads all that is there, and writes down what came in which order."""

    def __init__(self, bootstrap: str, group: str | None) -> None:
        super().__init__()
        self.values: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[BaseException] = []
        self.generations: set[int] = set()
        self._options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", **QUICK}
        self._group = group
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self.errors.append(error)

    def _read(self) -> None:
        if self._group is None:
            consumer = mainstem.Consumer(**self._options)
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        else:
            consumer = mainstem.Consumer(TOPIC, group_id=self._group, enable_auto_commit=False, **self._options)
        with consumer:
            while not self._stopping.is_set():
                records = consumer.poll(200)
                for record in records:
                    self.values[record.partition].append(int(record.value))
                if records and self._group is not None:
                    self.generations.add(consumer.group_metadata().generation_id)
                    try:
                        consumer.commit()
                    except KafkaError as error:
                        if not error.retriable:
                            raise

    def has(self, sent: list[int]) -> bool:
        return [each[-1] + 1 if each else 0 for each in self.values] == sent

    def stop(self) -> None:
        self._stopping.set()
        self.join(CATCH_UP_S)


def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    with Node(tmp_path, {"offsets.topic.num.partitions": "1"}) as node:
        Target("mainstem", node.bootstrap).topic(PARTITIONS, name=TOPIC)
        writes = Writes(node.bootstrap)
        readers = [Reads(node.bootstrap, None), Reads(node.bootstrap, "group")]
        for thread in (writes, *readers):
            thread.start()
        try:
            for kill in range(KILLS):
                before = [len(reader.values[0]) for reader in readers]
                deadline = time.monotonic() + CATCH_UP_S
                # Each gets something new between two kills, so that every one of them is met in the middle of things.
                while any(len(reader.values[0]) <= had for reader, had in zip(readers, before, strict=True)):
                    assert time.monotonic() < deadline, (kill, [reader.errors for reader in readers])
                    time.sleep(0.01)
                time.sleep(0.05 * (kill % 5))
                node.kill()
                node.start()
            writes.stop()
            assert writes.failed == []
            deadline = time.monotonic() + CATCH_UP_S
            while not all(reader.has(writes.sent) for reader in readers):
                assert time.monotonic() < deadline, [reader.errors for reader in readers]
                time.sleep(0.05)
        finally:
            writes.stop()
            for reader in readers:
                reader.stop()
        for reader in readers:
            assert reader.errors == []
            assert reader.values == [list(range(count)) for count in writes.sent]
        # The group outlives its coordinator: nobody had to join again.
        assert len(readers[1].generations) == 1
