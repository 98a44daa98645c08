"""A member of a group on our consumer or on librdkafka's, as a process. The same as Member.java, line for line.

    member.py ours|librdkafka BOOTSTRAP GROUP TOPIC ASSIGNOR

It prints "+ time partitions" when it gets some, "- time partitions" when it gives some back or lost them, and
"r partition offset" for each record, until a line comes in. The time is the system's monotonic clock in nanoseconds,
which Java's is, too. What our client notes for those who look for the cause of something goes to stderr.
"""

import logging
import select
import sys
import time
from collections.abc import Iterable
from typing import Any


def say(what: str, numbers: Iterable[int]) -> None:
    print(what, time.monotonic_ns(), *numbers, flush=True)


def is_told_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def run_ours(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from mainstem import Consumer, KafkaError, RebalanceListener

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("mainstem.client").setLevel(logging.DEBUG)

    class Says(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[Any]) -> None:
            say("+", [tp.partition for tp in partitions])

        def on_partitions_revoked(self, partitions: list[Any]) -> None:
            say("-", [tp.partition for tp in partitions])

    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
        partition_assignment_strategy=assignor,
    ) as consumer:
        consumer.subscribe([topic], listener=Says())
        while not is_told_to_stop():
            records = consumer.poll(100)
            for record in records:
                print("r", record.partition, record.offset, flush=True)
            if records:
                try:
                    consumer.commit()
                except KafkaError as error:
                    print("#", repr(str(error)), flush=True)


def run_librdkafka(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": assignor,
            "log_level": 0,
        }
    )

    def revoked(_: Any, partitions: list[Any]) -> None:
        say("-", [tp.partition for tp in partitions])

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("+", [tp.partition for tp in partitions]),
        on_revoke=revoked,
        on_lost=revoked,
    )
    while not is_told_to_stop():
        records = [each for each in consumer.consume(500, 0.1) if each.error() is None]
        for record in records:
            print("r", record.partition(), record.offset(), flush=True)
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print("#", repr(str(error)), flush=True)
    consumer.close()


if __name__ == "__main__":
    {"ours": run_ours, "librdkafka": run_librdkafka}[sys.argv[1]](*sys.argv[2:6])
