"""A producer whose broker is slow at the wrong moment."""

import asyncio

import pytest

from mainstem.client.errors import IllegalStateError, KafkaTimeoutError
from mainstem.client.producer import AsyncProducer
from mainstem.testing import Cluster
from tests.support.reading import read_values


def test_what_is_sent_while_a_transaction_is_being_committed_is_refused() -> None:
    """It would be in the next transaction, or in none."""

    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap, transactional_id="id") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"first")
            cluster.delay("EndTxn", 0.5)
            committing = asyncio.create_task(producer.commit_transaction())
            while not cluster.requests("EndTxn"):
                await asyncio.sleep(0.01)
            with pytest.raises(IllegalStateError, match="is being committed"):
                await producer.send("t", b"in between")
            await committing
            cluster.heal()
            async with producer.transaction():
                await producer.send("t", b"second")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"first", b"second"]


def test_an_abort_comes_after_everything_that_is_in_flight_also_what_was_given_up() -> None:
    """Or a batch that is late would open a transaction that nobody ends."""

    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(
            bootstrap_servers=cluster.bootstrap,
            transactional_id="id",
            linger_ms=0,
            request_timeout_ms=600,
            delivery_timeout_ms=1000,
        ) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.partitions_for("t")
            cluster.delay("Produce", 5)
            with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
                await producer.send_and_wait("t", b"late")
            assert producer._sender is not None
            assert producer._sender.in_flight == 1
            aborting = asyncio.create_task(producer.abort_transaction())
            while producer._sender.in_flight:
                assert cluster.requests("EndTxn") == 0
                await asyncio.sleep(0.01)
            cluster.heal()
            await aborting
            async with producer.transaction():
                await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]
