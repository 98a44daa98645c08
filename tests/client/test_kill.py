"""A producer through kill -9 and restarts of its broker: nothing lost, nothing twice, nothing out of order."""

import os
import random
import threading
import time
from pathlib import Path

import pytest

from mainstem.client.admin_types import NewTopic
from mainstem.client.batches import SendFuture
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from tests.support.node import Node
from tests.support.reading import read_values

PARTITIONS = 3


def produce_through_kills(home: Path, kills: int, seed: int, **options: object) -> None:
    rng = random.Random(seed)
    node = Node(home)
    node.start()
    sent: list[list[SendFuture]] = [[] for _ in range(PARTITIONS)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def produce(producer: Producer) -> None:
        try:
            while not stop.is_set():
                for partition, futures in enumerate(sent):
                    for _ in range(20):
                        futures.append(producer.send("log", b"%d" % len(futures), partition=partition))
                stop.wait(0.001)
        except BaseException as error:
            failures.append(error)

    try:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic("log", PARTITIONS, 1)])
        with Producer(bootstrap_servers=node.bootstrap, delivery_timeout_ms=300_000, **options) as producer:
            thread = threading.Thread(target=produce, args=(producer,))
            thread.start()
            for _ in range(kills):
                acknowledged = len(sent[0])
                time.sleep(rng.uniform(0.0, 0.4))
                node.kill()
                node.start()
                # Progress between kills: something sent before this one is acknowledged after it.
                if acknowledged:
                    sent[0][acknowledged - 1].result(60)
            stop.set()
            thread.join(60)
            assert not failures, failures
            producer.flush(120_000)
        for partition, futures in enumerate(sent):
            offsets = [future.result(0).offset for future in futures]
            found = read_values(node.bootstrap, "log", partition)
            assert found == [b"%d" % at for at in range(len(futures))], _first_difference(found)
            # A batch that was written twice would have been answered with its first offsets, so they are exact.
            assert offsets == list(range(len(futures)))
    finally:
        stop.set()
        node.kill()


def _first_difference(found: list[bytes | None]) -> str:
    for at, value in enumerate(found):
        if value != b"%d" % at:
            return f"at offset {at} there is {value!r}; {len(found)} records in all"
    return f"{len(found)} records, in order"


def test_a_producer_survives_two_kills(tmp_path: Path) -> None:
    produce_through_kills(tmp_path, 2, 1, linger_ms=0, batch_size=500)


@pytest.mark.campaign
@pytest.mark.parametrize("options", [{"linger_ms": 0, "batch_size": 300}, {}, {"compression_type": "lz4"}])
def test_a_producer_survives_thirty_kills(tmp_path: Path, options: dict[str, object]) -> None:
    seed = int(os.environ.get("MAINSTEM_SEED", "1"))
    produce_through_kills(tmp_path, 30, seed, **options)
