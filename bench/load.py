"""The work that both brokers are given, done by `confluent-kafka` (librdkafka), the same for both.

Every function takes a running system and a topic's name, and answers with figures; every wait is bounded.
"""

import time
from collections.abc import Sequence
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems import System

DEADLINE_S = 120.0

_QUIET = {"log_level": 4}  # warnings, not what the library says when a client is closed
_PRODUCER = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 256 << 10,
    "acks": "all",
}


def new_topic(system: System, partitions: int = 1) -> str:
    """A fresh topic; its name is told when its partitions can be produced to."""
    name = f"bench-{uuid4().hex[:12]}"
    create_topics(system, [name], partitions)
    return name


def create_topics(system: System, names: Sequence[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap, **_QUIET})
    made = admin.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names],
        operation_timeout=DEADLINE_S,
        request_timeout=DEADLINE_S,
    )
    for done in made.values():
        done.result(DEADLINE_S)


class Failures:
    """What delivery reports said went wrong. A measurement with failures is none."""

    def __init__(self) -> None:
        self.delivered = 0
        self.first: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.delivered += 1
        if error is not None and self.first is None:
            self.first = error

    def check(self, expected: int) -> None:
        if self.first is not None:
            raise KafkaException(self.first)
        assert self.delivered == expected, f"{self.delivered} of {expected} records were acknowledged"


def produce(system: System, topic: str, records: int, size: int) -> tuple[float, float]:
    """Records as fast as one producer sends them to one partition: seconds, and the broker's processor seconds."""
    failures = Failures()
    producer = Producer({"bootstrap.servers": system.bootstrap, **_QUIET, **_PRODUCER})
    producer.list_topics(topic, timeout=DEADLINE_S)
    value = bytes(size)
    batch: list[dict[str, object]] = [{"value": value}] * 5000
    cpu = system.cpu_s()
    began = time.perf_counter()
    sent = 0
    while sent < records:
        # Only the last record of a batch asks for a report: a call into Python per record would measure Python.
        messages = list(batch[: records - sent])
        messages[-1] = {"value": value, "callback": failures}
        accepted = producer.produce_batch(topic, messages, partition=0)
        if accepted < len(messages):
            raise AssertionError("the producer's queue took less than it was given")
        sent += len(messages)
        while len(producer) > 200_000:
            producer.poll(0.002)
        producer.poll(0)
    left = producer.flush(DEADLINE_S)
    seconds = time.perf_counter() - began
    assert left == 0, f"{left} records were not acknowledged within {DEADLINE_S} s"
    failures.check((records + len(batch) - 1) // len(batch))
    return seconds, system.cpu_s() - cpu


def consume(system: System, topic: str, records: int) -> tuple[float, float]:
    """Reads a partition from its start, out of the page cache: seconds, and the broker's processor seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            **_QUIET,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 64 << 10,
            "fetch.message.max.bytes": 1 << 20,
            # By default it rests a second whenever its queue is full, which a fast broker sees to.
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        cpu = system.cpu_s()
        began = time.perf_counter()
        got = 0
        while got < records:
            messages = consumer.consume(10_000, timeout=10.0)
            assert messages, f"{got} of {records} records came within 10 s"
            assert messages[0].error() is None, messages[0].error()
            got += len(messages)
            assert time.perf_counter() - began < DEADLINE_S
        return time.perf_counter() - began, system.cpu_s() - cpu
    finally:
        consumer.close()


def acknowledge_one_by_one(system: System, topic: str, records: int) -> list[float]:
    """From `produce` to the acknowledgement, one record at a time, `acks=all`, in milliseconds."""
    failures = Failures()
    producer = Producer({"bootstrap.servers": system.bootstrap, **_QUIET, "acks": "all", "linger.ms": 0})
    times = []
    warm = records // 10
    for _ in range(records + warm):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=failures)
        assert producer.flush(DEADLINE_S) == 0
        times.append((time.perf_counter() - began) * 1000)
    failures.check(records + warm)
    return times[warm:]


def produced_to_consumed(system: System, topic: str, records: int) -> list[float]:
    """From `produce` to when a waiting consumer has the record, one at a time, in milliseconds."""
    producer = Producer({"bootstrap.servers": system.bootstrap, **_QUIET, "acks": "all", "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": system.bootstrap, **_QUIET, "group.id": "bench", "enable.auto.commit": False}
    )
    times = []
    warm = records // 10
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for at in range(records + warm):
            began = time.perf_counter()
            producer.produce(topic, b"%d" % at, partition=0)
            message = consumer.poll(DEADLINE_S)
            times.append((time.perf_counter() - began) * 1000)
            assert message is not None, "the record did not come"
            assert message.error() is None, message.error()
            assert message.value() == b"%d" % at, (message.value(), at)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
    finally:
        consumer.close()
    return times[warm:]


def single_record_requests(system: System, topic: str, producers: int, records: int) -> tuple[float, float]:
    """Producers that put one record into each request: seconds, and the broker's processor seconds."""
    failures = Failures()
    made = [
        Producer(
            {
                "bootstrap.servers": system.bootstrap,
                **_QUIET,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "acks": 1,
                "queue.buffering.max.messages": records + 1,
            }
        )
        for _ in range(producers)
    ]
    for producer in made:
        producer.list_topics(topic, timeout=DEADLINE_S)
    batch = [{"value": b"x" * 100}] * 499 + [{"value": b"x" * 100, "callback": failures}]
    rounds = records // producers // len(batch)
    cpu = system.cpu_s()
    began = time.perf_counter()
    for _ in range(rounds):
        for producer in made:
            assert producer.produce_batch(topic, list(batch), partition=0) == len(batch)
    for producer in made:
        assert producer.flush(DEADLINE_S) == 0
    seconds = time.perf_counter() - began
    failures.check(rounds * producers)
    return seconds, system.cpu_s() - cpu


def first_acknowledgement(system: System, topic: str) -> None:
    """Returns when one record was acknowledged."""
    failures = Failures()
    producer = Producer({"bootstrap.servers": system.bootstrap, **_QUIET, "acks": "all", "message.timeout.ms": 100_000})
    producer.produce(topic, b"x", partition=0, on_delivery=failures)
    assert producer.flush(DEADLINE_S) == 0
    failures.check(1)


def transactions(system: System, topic: str, count: int, duration_ms: int, size: int) -> tuple[int, float, list[float]]:
    """Transactions one after the other, each sent into for so long: records, seconds, and from begin to committed (ms).

    The producer's queue is short, so that the end of a transaction does not wait for what piled up in the client.
    """
    failures = Failures()
    producer = Producer(
        {"bootstrap.servers": system.bootstrap, **_QUIET, **_PRODUCER, "transactional.id": f"bench-{uuid4().hex}"}
    )
    producer.init_transactions(DEADLINE_S)
    batch: list[dict[str, object]] = [{"value": bytes(size)}] * 500
    queue_max = max(1000, (4 << 20) // size)
    times = []
    sent = reports = 0
    warm = count // 10
    began = time.perf_counter()
    for number in range(count + warm):
        if number == warm:
            sent, began = 0, time.perf_counter()
        started = time.perf_counter()
        producer.begin_transaction()
        until = started + duration_ms / 1000
        while time.perf_counter() < until:
            messages = list(batch)
            messages[-1] = {"value": bytes(size), "callback": failures}
            assert producer.produce_batch(topic, messages, partition=0) == len(messages)
            sent += len(messages)
            reports += 1
            while len(producer) > queue_max:
                producer.poll(0.001)
        producer.commit_transaction(DEADLINE_S)
        times.append((time.perf_counter() - started) * 1000)
    seconds = time.perf_counter() - began
    producer.flush(DEADLINE_S)
    failures.check(reports)
    return sent, seconds, times[warm:]
