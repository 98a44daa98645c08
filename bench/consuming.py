"""Consuming 100 B records with four clients on one broker: as objects, and as Arrow.

Each measurement is a process of its own that reads a topic of one partition from its beginning, the fastest way its
client has: a list at a time. What is counted is from the first to the last record, so that finding the broker is not.
Rounds go through all clients, forwards and backwards in turn, so that whatever else the machine does meets all of them.

    python -m bench.consuming CLIENT BOOTSTRAP TOPIC RECORDS     one measurement: records per second
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from bench import load
from bench.frame import MAINSTEM, Figures, Result, Setting

RECORDS: Final = 2_000_000
SLOW_RECORDS: Final = 200_000
RECORD_BYTES: Final = 100
AT_A_TIME: Final = 10_000
TIMEOUT_S: Final = 600


def _ours(bootstrap: str, topic: str, count: int) -> float:
    from mainstem import Consumer

    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        return _timed(lambda: len(consumer.poll(10_000, max_records=AT_A_TIME)), count)


def _arrow(bootstrap: str, topic: str, count: int) -> float:
    from mainstem import Consumer

    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        return _timed(lambda: sum(batch.num_rows for batch in consumer.fetch_arrow(10_000)), count)


def _confluent(bootstrap: str, topic: str, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    # By default it rests a second whenever its queue is full, and that would be most of what we measure.
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rate = _timed(lambda: len(consumer.consume(AT_A_TIME, 10.0)), count)
    consumer.close()
    return rate


def _kafka_python(bootstrap: str, topic: str, count: int) -> float:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=AT_A_TIME
    )
    rate = _timed(lambda: sum(map(len, consumer.poll(10_000).values())), count)
    consumer.close()
    return rate


def _aiokafka(bootstrap: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    async def run() -> float:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            first, got, began = 0, 0, 0.0
            while got < count:
                came = await consumer.getmany(timeout_ms=10_000, max_records=AT_A_TIME)
                got += sum(map(len, came.values()))
                if not began:
                    first, began = got, time.perf_counter()
            return (got - first) / (time.perf_counter() - began)

    return asyncio.run(run())


def _timed(take: Callable[[], int], count: int) -> float:
    """Records per second after the first that came."""
    first = got = take()
    began = time.perf_counter()
    while got < count:
        got += take()
    return (got - first) / (time.perf_counter() - began)


CLIENTS: Final = {
    "ours": _ours,
    "arrow": _arrow,
    "confluent": _confluent,
    "kafka_python": _kafka_python,
    "aiokafka": _aiokafka,
}
_SLOW: Final = ("kafka_python", "aiokafka")


def measure(setting: Setting) -> Result:
    """All clients on one Mainstem broker."""
    result = Result()
    system = setting.systems()[MAINSTEM]
    try:
        system.start()
        topic = load.new_topic(system)
        load.produce(system, topic, RECORDS, RECORD_BYTES)
        for number in range(setting.pairs + 1):
            names = list(CLIENTS) if number % 2 == 0 else list(reversed(CLIENTS))
            rates = {name: _in_a_process(name, system.bootstrap, topic) for name in names}
            setting.say("  " + ", ".join(f"{name} {rates[name] / 1e6:.3g} M/s" for name in CLIENTS))
            if number > 0:
                result.rounds[MAINSTEM].append(_figures(rates))
    finally:
        system.kill()
    return result


def _in_a_process(client: str, bootstrap: str, topic: str) -> float:
    count = SLOW_RECORDS if client in _SLOW else RECORDS
    command = [sys.executable, "-m", "bench.consuming", client, bootstrap, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{client}: {done.stderr[-2000:]}"
    return float(done.stdout.split()[-1])


def _figures(rates: dict[str, float]) -> Figures:
    return {
        "objects": rates["ours"] / 1e6,
        "objects_to_confluent": rates["ours"] / rates["confluent"],
        "objects_to_kafka_python": rates["ours"] / rates["kafka_python"],
        "objects_to_aiokafka": rates["ours"] / rates["aiokafka"],
        "arrow": rates["arrow"] / 1e6,
        "arrow_to_confluent": rates["arrow"] / rates["confluent"],
    }


if __name__ == "__main__":
    print(CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
