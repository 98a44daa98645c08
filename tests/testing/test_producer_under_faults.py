"""A producer whose broker is slow at the wrong moment."""

import asyncio
import contextlib
from typing import Any

import pytest

from mainstem import NewTopic
from mainstem.client.admin import AsyncAdmin
from mainstem.client.errors import (
    DisconnectedError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from mainstem.client.partitioner import partition_for_key
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


def test_a_topic_that_is_made_anew_with_less_partitions_is_written_to_as_it_is_now() -> None:
    """Keys go to the partitions that there are, as in every other client; not to those that the topic once had."""

    async def story(cluster: Cluster) -> list[int]:
        keys = [b"%d" % number for number in range(20)]
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncProducer(**servers, metadata_max_age_ms=50) as producer, AsyncAdmin(**servers) as admin:
            await asyncio.gather(*[await producer.send("t", b"old", key=key) for key in keys])
            await admin.delete_topics(["t"])
            await admin.create_topics([NewTopic("t", 2)])
            while await producer.partitions_for("t") != [0, 1]:
                await asyncio.sleep(0.01)
            sent = await asyncio.gather(*[await producer.send("t", b"new", key=key) for key in keys])
            return [each.partition for each in sent]

    with Cluster({"auto.create.topics.enable": "false"}, topics={"t": 8}) as cluster:
        chosen = asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert chosen == [partition_for_key(b"%d" % number, 2) for number in range(20)]


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_an_abort_that_drops_a_batch_between_two_tries_leaves_the_next_transaction_alone(
    transaction_version: int,
) -> None:
    """Its sequence is lost, and brokers take no gap from the same epoch."""

    async def story(cluster: Cluster) -> None:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncAdmin(**servers) as admin:
            await admin.update_features({"transaction.version": transaction_version}, downgrade=True)
        slow: dict[str, Any] = {"retry_backoff_ms": 30_000, "retry_backoff_max_ms": 30_000}
        async with AsyncProducer(**servers, **slow, transactional_id="id") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted")
            before = cluster.requests("Produce")
            cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
            sent = await producer.send("t", b"dropped")
            assert producer._sender is not None
            while cluster.requests("Produce") == before or producer._sender.in_flight:
                await asyncio.sleep(0.01)
            await producer.abort_transaction()
            with pytest.raises(IllegalStateError, match="aborted"):
                sent.result(0)
            async with producer.transaction():
                await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_abort_ends_a_transaction_that_the_coordinator_is_just_being_told_of(is_lost: bool) -> None:
    """Before transaction.version 2: or it would stay open, and whoever began it be fenced when its time is up."""

    async def story(cluster: Cluster) -> None:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncAdmin(**servers) as admin:
            await admin.update_features({"transaction.version": 1}, downgrade=True)
            async with AsyncProducer(**servers, transactional_id="id", max_block_ms=1000) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.partitions_for("t")
                if is_lost:
                    cluster.disconnect("AddPartitionsToTxn", times=1, carried_out=True)
                    cluster.fail("AddPartitionsToTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
                else:
                    cluster.delay("AddPartitionsToTxn", 0.3)
                await producer.send("t", b"aborted")
                while not cluster.requests("AddPartitionsToTxn"):
                    await asyncio.sleep(0.01)
                await producer.abort_transaction()
                cluster.heal()
                assert [each.state for each in await admin.list_transactions() if each.state == "Ongoing"] == []
                async with producer.transaction():
                    await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 30))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]


def test_an_abort_before_the_coordinator_was_told_of_anything_is_one() -> None:
    async def story(cluster: Cluster) -> None:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncAdmin(**servers) as admin:
            await admin.update_features({"transaction.version": 1}, downgrade=True)
        async with AsyncProducer(**servers, transactional_id="id", max_block_ms=500) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            cluster.fail("AddPartitionsToTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
            with pytest.raises(KafkaTimeoutError):
                await producer.send_and_wait("t", b"aborted")
            await producer.abort_transaction()
            cluster.heal()
            async with producer.transaction():
                await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 30))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]


def test_a_batch_that_may_have_been_written_is_asked_about_before_it_goes_under_a_new_epoch() -> None:
    """Both are written while nobody listens, and the first is given up: the second must not be written once more."""

    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(
            bootstrap_servers=cluster.bootstrap, linger_ms=0, request_timeout_ms=1900, delivery_timeout_ms=2000
        ) as producer:
            await producer.send_and_wait("t", b"0")
            cluster.pause()
            first = await producer.send("t", b"1")
            await asyncio.sleep(1)  # so that the time of one is up and that of the other is not
            second = await producer.send("t", b"2")
            with pytest.raises(KafkaTimeoutError):
                await first
            cluster.resume()
            with contextlib.suppress(KafkaTimeoutError):
                await second

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0) in ([b"0", b"1", b"2"], [b"0", b"2"])


@pytest.mark.parametrize("again", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_commit_that_nobody_waits_for_any_more_can_be_asked_for_again(transaction_version: int, again: str) -> None:
    """The first one may come to the coordinator or not. An abort that comes after it is refused there."""

    async def story(cluster: Cluster) -> None:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncAdmin(**servers) as admin:
            await admin.update_features({"transaction.version": transaction_version}, downgrade=True)
        async with AsyncProducer(**servers, transactional_id="id") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"first")
            cluster.delay("EndTxn", 0.3)
            committing = asyncio.create_task(producer.commit_transaction())
            while not cluster.requests("EndTxn"):
                await asyncio.sleep(0.01)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            if again == "abort_transaction":
                with pytest.raises((InvalidTxnStateError, InvalidProducerEpochError, ProducerFencedError)):
                    await producer.abort_transaction()
                return
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"second")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        found = read_values(cluster.bootstrap, "t", 0, read_committed=True)
        assert found == ([b"first"] if again == "abort_transaction" else [b"first", b"second"])


def test_a_block_that_is_cancelled_before_the_coordinator_was_asked_to_commit_is_aborted() -> None:
    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap, transactional_id="id") as producer:
            await producer.init_transactions()
            cluster.delay("Produce", 0.5)

            async def block() -> None:
                async with producer.transaction():
                    await producer.send("t", b"cancelled")

            running = asyncio.create_task(block())
            while not cluster.requests("Produce"):
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            cluster.heal()
            async with producer.transaction():
                await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]


def test_an_abort_does_not_wait_for_a_batch_that_nobody_will_send_again() -> None:
    """Its connection is lost while another batch has spoilt the transaction already."""

    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap, transactional_id="id", linger_ms=0) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted", partition=0)
            await producer.send_and_wait("t", b"aborted", partition=1)
            before = cluster.requests("Produce")
            cluster.delay("Produce", 0.3)
            cluster.fail("Produce", "INVALID_RECORD")
            cluster.disconnect("Produce")
            spoilt = await producer.send("t", b"refused", partition=0)
            while cluster.requests("Produce") == before:
                await asyncio.sleep(0.001)
            lost = await producer.send("t", b"lost", partition=1)
            with pytest.raises(InvalidRecordError):
                await spoilt
            assert producer._sender is not None
            assert producer._sender.in_flight == 1
            await producer.abort_transaction()
            with pytest.raises(DisconnectedError):
                await lost
            cluster.heal()
            async with producer.transaction():
                await producer.send("t", b"next", partition=1)

    with Cluster(topics={"t": 2}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 1, read_committed=True) == [b"next"]


def test_an_abort_whose_new_epoch_got_lost_can_be_asked_for_again() -> None:
    """Before transaction.version 2: the transaction is over, and to end it once more under its old epoch is refused."""

    async def story(cluster: Cluster) -> None:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with AsyncAdmin(**servers) as admin:
            await admin.update_features({"transaction.version": 1}, downgrade=True)
        async with AsyncProducer(**servers, transactional_id="id", max_block_ms=500) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted")
            cluster.fail("Produce", "INVALID_RECORD")
            with pytest.raises(InvalidRecordError):
                await producer.send_and_wait("t", b"refused")
            cluster.disconnect("InitProducerId", times=None, carried_out=True)
            with pytest.raises(KafkaTimeoutError):
                await producer.abort_transaction()
            cluster.heal()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"next")

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 20))
        assert read_values(cluster.bootstrap, "t", 0, read_committed=True) == [b"next"]


def test_a_time_that_is_no_whole_number_keeps_nothing_behind_it_from_being_sent() -> None:
    """`time.time() * 1000` is one. Its record must not be half in a batch that others are waiting behind."""

    async def story(cluster: Cluster) -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("t", b"before")
            with pytest.raises(InvalidTimestampError, match=r"1700000000000\.5"):
                await producer.send("t", b"never", timestamp_ms=1_700_000_000_000.5)  # type: ignore[arg-type]
            await asyncio.wait_for(producer.send_and_wait("t", b"after"), 10)

    with Cluster(topics={"t": 1}) as cluster:
        asyncio.run(story(cluster))
        assert read_values(cluster.bootstrap, "t") == [b"before", b"after"]
