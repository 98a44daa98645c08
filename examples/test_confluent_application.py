"""Testing an application that uses confluent-kafka: orders in, totals out, and nothing lost when the broker is.

The application is the first half of this file and knows nothing of Mainstem. Its tests get a broker of their own as a
fixture and make its life hard.
"""

import json
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer

from mainstem.testing import Cluster

# The application


def send_order(producer: Producer, customer: str, amount: int) -> None:
    producer.produce("orders", key=customer.encode(), value=json.dumps({"amount": amount}).encode())


class Totals:
    """Adds up the orders of each customer. Commits what it has counted."""

    def __init__(self, bootstrap: str) -> None:
        self.totals: dict[str, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "totals",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["orders"])

    def count_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            customer = message.key().decode()
            self.totals[customer] = self.totals.get(customer, 0) + json.loads(message.value())["amount"]
            self._consumer.commit(message, asynchronous=False)

    def count_until(self, orders: dict[str, int], seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while self.totals != orders and time.monotonic() < until:
            self.count_for(0.2)

    def close(self) -> None:
        self._consumer.close()


# Its tests


def producer_for(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})


def test_orders_are_added_up(fresh_mainstem_cluster: Cluster) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("orders", partitions=3)
    producer = producer_for(cluster)
    for customer, amount in [("ann", 5), ("bob", 7), ("ann", 1)]:
        send_order(producer, customer, amount)
    producer.flush(10)
    totals = Totals(cluster.bootstrap)
    totals.count_until({"ann": 6, "bob": 7})
    totals.close()
    assert totals.totals == {"ann": 6, "bob": 7}


def test_an_order_survives_a_leader_that_moves_away(fresh_mainstem_cluster: Cluster) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("orders")
    cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = producer_for(cluster)
    send_order(producer, "ann", 5)
    assert producer.flush(20) == 0
    assert cluster.requests("Produce") >= 3


def test_nothing_is_counted_twice_when_the_broker_is_killed(fresh_mainstem_cluster: Cluster) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("orders")
    producer = producer_for(cluster)
    totals = Totals(cluster.bootstrap)
    for _ in range(10):
        send_order(producer, "ann", 1)
    producer.flush(10)
    totals.count_until({"ann": 10})
    cluster.kill()
    back = threading.Timer(0.5, cluster.restart)
    back.start()
    for _ in range(10):
        send_order(producer, "ann", 1)
    assert producer.flush(30) == 0
    back.join()
    totals.count_until({"ann": 20})
    totals.close()
    assert totals.totals == {"ann": 20}


@pytest.mark.parametrize("seconds", [0.5])
def test_a_slow_broker_is_waited_for(fresh_mainstem_cluster: Cluster, seconds: float) -> None:
    cluster = fresh_mainstem_cluster
    cluster.create_topic("orders")
    cluster.delay("Produce", seconds)
    producer = producer_for(cluster)
    began = time.monotonic()
    send_order(producer, "ann", 5)
    assert producer.flush(20) == 0
    assert time.monotonic() - began >= seconds
