"""A producer whose broker is slow at the wrong moment."""

import asyncio

import pytest

from mainstem.client.errors import IllegalStateError
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
