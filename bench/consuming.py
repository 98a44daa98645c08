"""Consuming 100 B records with four clients on one broker: as objects, and as Arrow.

Each measurement is a process of its own that reads a topic of one partition from its beginning, the fastest way its
client has: a list at a time. What is counted is from the first to the last record, so that finding the broker is not.

    python -m bench.consuming CLIENT BOOTSTRAP TOPIC RECORDS     one measurement: records per second, CPU seconds
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from bench import load
from bench.clients import Client, Measured, compare, one_measurement
from bench.frame import Figures, Result, Setting
from bench.systems import System

RECORDS: Final = 2_000_000
RECORD_BYTES: Final = 100
AT_A_TIME: Final = 10_000


def _ours(bootstrap: str, topic: str, count: int) -> Measured:
    from mainstem import Consumer

    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        return _timed(lambda: len(consumer.poll(10_000, max_records=AT_A_TIME)), count)


def _arrow(bootstrap: str, topic: str, count: int) -> Measured:
    from mainstem import Consumer

    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        return _timed(lambda: sum(batch.num_rows for batch in consumer.fetch_arrow(10_000)), count)


def _confluent(bootstrap: str, topic: str, count: int) -> Measured:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    # By default it rests a second whenever its queue is full, and that would be most of what we measure.
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rate = _timed(lambda: len(consumer.consume(AT_A_TIME, 10.0)), count)
    consumer.close()
    return rate


def _kafka_python(bootstrap: str, topic: str, count: int) -> Measured:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=AT_A_TIME
    )
    rate = _timed(lambda: sum(map(len, consumer.poll(10_000).values())), count)
    consumer.close()
    return rate


def _aiokafka(bootstrap: str, topic: str, count: int) -> Measured:
    from aiokafka import AIOKafkaConsumer

    async def run() -> Measured:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            first, got, began, used = 0, 0, 0.0, 0.0
            while got < count:
                came = await consumer.getmany(timeout_ms=10_000, max_records=AT_A_TIME)
                got += sum(map(len, came.values()))
                if not began:
                    first, began, used = got, time.perf_counter(), time.process_time()
            return _since(began, used, got - first)

    return asyncio.run(run())


def _timed(take: Callable[[], int], count: int) -> Measured:
    """What it took after the first that came."""
    first = got = take()
    began, used = time.perf_counter(), time.process_time()
    while got < count:
        got += take()
    return _since(began, used, got - first)


def _since(began: float, used: float, records: int) -> Measured:
    return records / (time.perf_counter() - began), (time.process_time() - used) / (records / 1e6)


CLIENTS: Final[dict[str, Client]] = {
    "ours": _ours,
    "arrow": _arrow,
    "confluent": _confluent,
    "kafka_python": _kafka_python,
    "aiokafka": _aiokafka,
}


def measure(setting: Setting) -> Result:
    """All clients on one Mainstem broker, which has the records."""
    return compare(setting, "bench.consuming", CLIENTS, RECORDS, _filled, _figures)


def _filled(system: System) -> Callable[[], str]:
    topic = load.new_topic(system)
    load.produce(system, topic, RECORDS, RECORD_BYTES)
    return lambda: topic


def _figures(found: dict[str, Measured]) -> Figures:
    rates = {name: rate for name, (rate, _) in found.items()}
    cpu = {name: used for name, (_, used) in found.items()}
    return {
        "objects": rates["ours"] / 1e6,
        "objects_to_confluent": rates["ours"] / rates["confluent"],
        "objects_to_kafka_python": rates["ours"] / rates["kafka_python"],
        "objects_to_aiokafka": rates["ours"] / rates["aiokafka"],
        "objects_cpu": cpu["ours"],
        "objects_cpu_to_confluent": cpu["ours"] / cpu["confluent"],
        "arrow": rates["arrow"] / 1e6,
        "arrow_to_confluent": rates["arrow"] / rates["confluent"],
        "arrow_cpu": cpu["arrow"],
        "arrow_cpu_to_confluent": cpu["arrow"] / cpu["confluent"],
    }


if __name__ == "__main__":
    one_measurement(CLIENTS)
