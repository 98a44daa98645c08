"""Exactly once, whatever is killed: a topic is copied, and words are counted, while brokers and clients die.

The copy must be the transformed source, record by record, in order; the counts must be right.
"""

import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.drivers.makes import CLONE, find_make, streams_command
from tests.support.node import Node

PARTITIONS = 2
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


def seed() -> int:
    """When things are killed; it is shown where a test fails, and MAINSTEM_SEED chooses it."""
    chosen = int(os.environ.get("MAINSTEM_SEED") or time.time_ns() % 1_000_000)
    print(f"MAINSTEM_SEED={chosen}")
    return chosen


def create(node: Node, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        done.result(30)


def fill(node: Node, topic: str, first: int, last: int, line: Callable[[int], str]) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True, **QUICK})
    for number in range(first, last):
        producer.produce(topic, line(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def read_committed(node: Node, topic: str, wanted: int, timeout_s: float) -> list[list[tuple[bytes, bytes]]]:
    """Keys and values by partition; what is there after `timeout_s` at the latest, or as soon as `wanted` are."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "checking",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    deadline = time.monotonic() + timeout_s
    extra_until = 0.0
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.2):
            if message.error() is None:
                found[message.partition() or 0].append((message.key() or b"", message.value() or b""))
        if sum(map(len, found)) >= wanted:
            # Duplicates would come late: a moment more.
            extra_until = extra_until or time.monotonic() + 1.5
            if time.monotonic() > extra_until:
                break
    consumer.close()
    return found


class Killable:
    """A client process that is started again whenever it ends."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self.restarts = 0
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(15)
        self._process = self._start()

    def keep_alive(self) -> None:
        if self._process.poll() is not None:
            self.restarts += 1
            self._process = self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(15)


def wreck(node: Node, client: Killable, kills: int, rng: random.Random, then: Callable[[int], None]) -> None:
    """Kills the broker so many times at random moments, and every other time the client too, at another moment; each is
    back at once. `then` is called between."""

    def live() -> None:
        until = time.monotonic() + 0.3 + rng.random() * 1.2
        while time.monotonic() < until:
            client.keep_alive()
            time.sleep(0.05)

    for number in range(kills):
        live()
        if number % 2:
            client.kill()
            live()
        node.kill()
        node.start()
        then(number)


def copies_exactly_once(tmp_path: Path, command: list[str], kills: int, environment: dict[str, str] | None) -> None:
    per_kill = 200
    total = per_kill * (kills + 1)
    with Node(tmp_path / "node", {"transaction.state.log.num.partitions": "4"}) as node:
        create(node, "source", "target")
        fill(node, "source", 0, per_kill, str)
        client = Killable([*command, node.bootstrap, "source", "target", "copy"], tmp_path / "copier.log", environment)
        try:

            def more(number: int) -> None:
                fill(node, "source", per_kill * (number + 1), per_kill * (number + 2), str)

            wreck(node, client, kills, random.Random(seed()), more)
            deadline = time.monotonic() + 300
            found: list[list[tuple[bytes, bytes]]] = []
            while time.monotonic() < deadline:
                client.keep_alive()
                found = read_committed(node, "target", total, 5)
                if sum(map(len, found)) >= total:
                    break
        finally:
            client.close()
    for partition in range(PARTITIONS):
        expected = [f"<{number}>".encode() for number in range(partition, total, PARTITIONS)]
        values = [value for _, value in found[partition]]
        assert values == expected, f"partition {partition}: {len(values)} of {len(expected)}; {tmp_path}"


def python_copier() -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "tests.compat.drivers.copier"], {**os.environ, "PYTHONPATH": str(CLONE)}


def test_a_copy_through_three_kills_is_exact(tmp_path: Path) -> None:
    command, environment = python_copier()
    copies_exactly_once(tmp_path, command, 3, environment)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_confluent_kafka_copies_exactly_once_through_thirty_kills(tmp_path: Path) -> None:
    command, environment = python_copier()
    copies_exactly_once(tmp_path, command, 30, environment)


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("make", ["java-4.3", "java-3.9"])
def test_java_copies_exactly_once_through_thirty_kills(tmp_path: Path, make: str) -> None:
    command = list(find_make(make).command)
    copies_exactly_once(tmp_path, [*command[:-1], "Copier"], 30, None)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_kafka_streams_counts_words_through_ten_kills(tmp_path: Path) -> None:
    kills, per_kill = 10, 150
    words = ["stream", "river", "delta", "source", "stem"]

    def line(number: int) -> str:
        rng = random.Random(number)
        return " ".join(rng.choice(words) for _ in range(3))

    command = streams_command()
    with Node(tmp_path / "node", {"transaction.state.log.num.partitions": "4"}) as node:
        create(node, "lines", "counts")
        fill(node, "lines", 0, per_kill, line)
        state = tmp_path / "state"
        client = Killable([*command, node.bootstrap, "lines", "counts", str(state)], tmp_path / "streams.log")
        try:

            def more(number: int) -> None:
                fill(node, "lines", per_kill * (number + 1), per_kill * (number + 2), line)

            wreck(node, client, kills, random.Random(seed()), more)
            expected = Counter(word for number in range(per_kill * (kills + 1)) for word in line(number).split())
            deadline = time.monotonic() + 180
            counts: dict[str, int] = {}
            while time.monotonic() < deadline and counts != dict(expected):
                client.keep_alive()
                counts = {}
                for partition in read_committed(node, "counts", 1 << 30, 3):
                    for key, value in partition:
                        before = counts.get(key.decode(), 0)
                        (counts[key.decode()],) = struct.unpack(">q", value)
                        assert counts[key.decode()] > before, "a count that goes back was counted twice"
        finally:
            client.close()
    assert counts == dict(expected)
