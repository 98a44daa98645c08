"""Producing 100 B records with four clients to one broker: one call a record, and from Arrow.

Each measurement is a process of its own that writes to a topic of one partition with `acks=all`, idempotent where the
client can be, batches of up to a megabyte and 5 ms of lingering, uncompressed. What is counted is from the first call
to the last acknowledgement, after one record that finds the broker.

    python -m bench.producing CLIENT BOOTSTRAP TOPIC RECORDS     one measurement: records per second, CPU seconds
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

from bench import load
from bench.clients import Client, Measured, compare, one_measurement
from bench.frame import Figures, Result, Setting

if TYPE_CHECKING:
    from confluent_kafka import Producer as ConfluentProducer

RECORDS: Final = 1_000_000
VALUE: Final = bytes(100)
BATCH_BYTES: Final = 1_000_000


def _ours(bootstrap: str, topic: str, count: int) -> Measured:
    from mainstem import Producer

    with Producer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=5) as producer:
        producer.send(topic, VALUE).result(60)

        def send() -> None:
            for _ in range(count):
                producer.send(topic, VALUE)
            producer.flush()

        return _timed(send, count)


def _ours_async(bootstrap: str, topic: str, count: int) -> Measured:
    from mainstem import AsyncProducer

    async def run() -> Measured:
        async with AsyncProducer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=5) as producer:
            await producer.send_and_wait(topic, VALUE)
            began, used = time.perf_counter(), time.process_time()
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return _since(began, used, count)

    return asyncio.run(run())


def _arrow(bootstrap: str, topic: str, count: int) -> Measured:
    import pyarrow as pa

    from mainstem import Producer

    table = pa.table({"value": pa.array([VALUE] * count)})
    with Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        producer.send(topic, VALUE).result(60)
        return _timed(lambda: producer.send_table(table, topic), count)


def _confluent(bootstrap: str, topic: str, count: int) -> Measured:
    producer = _confluent_producer(bootstrap, topic)
    return _timed(lambda: _send_all(producer, topic, repeat(VALUE, count)), count)


def _confluent_arrow(bootstrap: str, topic: str, count: int) -> Measured:
    """What people do who have a table and librdkafka: its values as Python objects, one call each."""
    import pyarrow as pa

    table = pa.table({"value": pa.array([VALUE] * count)})
    producer = _confluent_producer(bootstrap, topic)
    values = chain.from_iterable(batch.column(0).to_pylist() for batch in table.to_batches(10_000))
    return _timed(lambda: _send_all(producer, topic, values), count)


def _confluent_producer(bootstrap: str, topic: str) -> "ConfluentProducer":
    """One that has found its broker."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 4,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    )
    producer.produce(topic, VALUE)
    producer.flush()
    return producer


def _send_all(producer: "ConfluentProducer", topic: str, values: Iterable[bytes]) -> None:
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.005)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def _kafka_python(bootstrap: str, topic: str, count: int) -> Measured:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", batch_size=BATCH_BYTES, linger_ms=5)
    producer.send(topic, VALUE).get(60)

    def send() -> None:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush()

    rate = _timed(send, count)
    producer.close()
    return rate


def _aiokafka(bootstrap: str, topic: str, count: int) -> Measured:
    from aiokafka import AIOKafkaProducer

    async def run() -> Measured:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            max_request_size=2 * BATCH_BYTES,
            linger_ms=5,
        )
        async with producer:
            await producer.send_and_wait(topic, VALUE)
            began, used = time.perf_counter(), time.process_time()
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return _since(began, used, count)

    return asyncio.run(run())


def _timed(work: Callable[[], object], count: int) -> Measured:
    began, used = time.perf_counter(), time.process_time()
    work()
    return _since(began, used, count)


def _since(began: float, used: float, records: int) -> Measured:
    return records / (time.perf_counter() - began), (time.process_time() - used) / (records / 1e6)


CLIENTS: Final[dict[str, Client]] = {
    "ours": _ours,
    "ours_async": _ours_async,
    "arrow": _arrow,
    "confluent": _confluent,
    "confluent_arrow": _confluent_arrow,
    "kafka_python": _kafka_python,
    "aiokafka": _aiokafka,
}


def measure(setting: Setting) -> Result:
    """All clients on one Mainstem broker, each to a new topic."""
    return compare(
        setting, "bench.producing", CLIENTS, RECORDS, lambda system: lambda: load.new_topic(system), _figures
    )


def _figures(found: dict[str, Measured]) -> Figures:
    rates = {name: rate for name, (rate, _) in found.items()}
    cpu = {name: used for name, (_, used) in found.items()}
    return {
        "calls": rates["ours"] / 1e6,
        "calls_to_confluent": rates["ours"] / rates["confluent"],
        "calls_to_kafka_python": rates["ours"] / rates["kafka_python"],
        "calls_to_aiokafka": rates["ours"] / rates["aiokafka"],
        "calls_cpu": cpu["ours"],
        "calls_cpu_to_confluent": cpu["ours"] / cpu["confluent"],
        "async_calls": rates["ours_async"] / 1e6,
        "async_calls_to_aiokafka": rates["ours_async"] / rates["aiokafka"],
        "arrow": rates["arrow"] / 1e6,
        "arrow_to_confluent": rates["arrow"] / max(rates["confluent"], rates["confluent_arrow"]),
        "arrow_cpu": cpu["arrow"],
        "arrow_cpu_to_confluent": cpu["arrow"] / min(cpu["confluent"], cpu["confluent_arrow"]),
    }


if __name__ == "__main__":
    one_measurement(CLIENTS)
