"""Two-phase commit by the client (KIP-939) through a whole node: what was prepared is what is committed."""

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest
from tests.support.raw import Peer, connect, failing, run_with_node, start_node
from tests.support.transactions import TxnClient, committed_offset, find_group, latest, read_committed


async def who_prepared(peer: Peer) -> TxnClient:
    """A client that has left a transaction of one record on `t` open, and may come back to it."""
    await peer.ensure_topic("t")
    client = TxnClient(peer, "id")
    await client.find()
    await client.init(enable2_pc=True)
    await client.write("t", b"prepared")
    return client


def test_two_phase_commit_is_offered_where_it_is_enabled(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        versions = await peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert next(key.max_version for key in versions.api_keys if key.api_key == 22) == 6
        client = TxnClient(peer, "id")
        await client.find()
        assert (await client.init(enable2_pc=True)).error_code == 0
        await client.write("t", b"prepared")
        back = TxnClient(peer, "id")
        answer = await back.init(enable2_pc=True, keep_prepared_txn=True)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (client.producer_id, client.epoch)
        assert (await client.describe()).transaction_timeout_ms == 2**31 - 1
        assert await client.end() is ErrorCode.PRODUCER_FENCED
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"prepared"]
        await back.write("t", b"next")
        await back.end_and_wait()
        assert await read_committed(peer, "t") == [b"prepared", b"next"]

    run_with_node(tmp_path, scenario, transaction_two_phase_commit_enable="true")


@pytest.mark.parametrize(
    "restarts_with", [None, "true", "false"], ids=["at once", "after a restart", "after it was switched off"]
)
def test_nothing_is_added_to_a_prepared_transaction_once_another_client_has_come_back_to_it(
    tmp_path: Path, restarts_with: str | None
) -> None:
    """T4: the predecessor still has the epoch of the open transaction, and no leader asked about it any more."""

    async def run() -> None:
        node = await start_node(tmp_path, transaction_two_phase_commit_enable="true")
        peer = await connect(node)
        await peer.ensure_topic("t")
        await peer.ensure_topic("other")
        await find_group(peer, "g")
        old = TxnClient(peer, "id")
        await old.find()
        await old.init(enable2_pc=True)
        await old.write("t", b"prepared")
        assert await old.commit_offset("g", "t", 5) is ErrorCode.NONE
        back = TxnClient(peer, "id")
        answer = await back.init(enable2_pc=True, keep_prepared_txn=True)
        assert (answer.error_code, answer.producer_epoch) == (0, old.epoch + 1)
        if restarts_with is not None:
            peer.close()
            await node.stop()
            node = await start_node(tmp_path, transaction_two_phase_commit_enable=restarts_with)
            old.peer = back.peer = peer = await connect(node)
            await settled_coordinators(peer, back)
        assert await old.copy().send("t", b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.send("other", b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.commit_offset("g", "t", 99) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await latest(peer, "t", 0) == 1
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"prepared"]
        assert await committed_offset(peer, "g", "t", require_stable=True) == 5
        await back.write("t", b"next")
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"prepared", b"next"]
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("tv2", [False, True], ids=["tv1", "tv2"])
def test_who_comes_back_to_a_prepared_transaction_adds_nothing_to_it_either(tmp_path: Path, tv2: bool) -> None:
    """It was prepared: it can only end. A batch of the newer epoch would keep the marker of the older one out, and
    the transaction would hang there (T7)."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        old = TxnClient(peer, "id", tv2)
        await old.find()
        await old.init(enable2_pc=True)
        await old.write("t", b"prepared")
        assert await old.commit_offset("g", "t", 5) is ErrorCode.NONE
        back = TxnClient(peer, "id", tv2)
        await back.init(enable2_pc=True, keep_prepared_txn=True)
        assert await back.copy().send("t", b"more") is ErrorCode.INVALID_TXN_STATE
        assert await back.send_offset("g", "t", 99) is ErrorCode.INVALID_TXN_STATE
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await latest(peer, "t", 1) == 2
        assert await committed_offset(peer, "g", "t", require_stable=True) == 5
        await back.write("t", b"next")
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"prepared", b"next"]

    run_with_node(tmp_path, scenario, transaction_two_phase_commit_enable="true")


def test_who_came_back_goes_on_at_once_when_its_transaction_has_ended(tmp_path: Path) -> None:
    """Its next epoch is two above that of the transaction: the marker in between is not the end of what it begins."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await who_prepared(peer)
        back = TxnClient(peer, "id")
        await back.init(enable2_pc=True, keep_prepared_txn=True)
        with failing(node, WriteTxnMarkersRequest, ErrorCode.NETWORK_EXCEPTION):
            assert await back.end() is ErrorCode.NONE
            peer.send(back.produce_request("t", b"next"), 12)
            while not node.verification.is_waiting(back.producer_id):
                await asyncio.sleep(0)
        answer = await peer.receive(ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert await back.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"prepared", b"next"]

    run_with_node(
        tmp_path,
        scenario,
        transaction_two_phase_commit_enable="true",
        add_partitions_to_txn_retry_backoff_max_ms="20000",
    )


async def settled_coordinators(peer: Peer, client: TxnClient) -> None:
    await client.settled()
    while await committed_offset(peer, "g", "t") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0)


def test_a_client_goes_on_with_its_open_transaction_after_a_restart(tmp_path: Path) -> None:
    """Where transactions are doubted when a term begins: its own client is known to the coordinator."""

    async def run() -> None:
        node = await start_node(tmp_path, transaction_two_phase_commit_enable="true")
        peer = await connect(node)
        await peer.ensure_topic("t")
        clients = [TxnClient(peer, "one", tv2=False), TxnClient(peer, "two", tv2=True)]
        for client in clients:
            await client.begin()
            await client.write("t", b"a")
        peer.close()
        await node.stop()
        node = await start_node(tmp_path, transaction_two_phase_commit_enable="true")
        peer = await connect(node)
        for client in clients:
            client.peer = peer
            await client.settled()
            assert await client.send("t", b"b") is ErrorCode.NONE
            assert await client.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"a", b"a", b"b", b"b"]
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_client_is_not_told_of_a_transaction_that_its_predecessor_can_still_write_to(tmp_path: Path) -> None:
    """Where not every partition could be told, it is to try again; the transaction waits."""

    async def scenario(node: Broker, peer: Peer) -> None:
        old = await who_prepared(peer)
        request = InitProducerIdRequest(
            transactional_id="id", transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
        )
        with failing(node, WriteTxnMarkersRequest, ErrorCode.NETWORK_EXCEPTION):
            answer = await peer.ask(request, 6, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        back = TxnClient(peer, "id")
        assert (await back.init(enable2_pc=True, keep_prepared_txn=True)).ongoing_txn_producer_epoch == old.epoch
        assert await old.send("t", b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH

    run_with_node(tmp_path, scenario, transaction_two_phase_commit_enable="true", request_timeout_ms="100")


def test_a_client_that_was_overtaken_fences_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its epoch and the fence another client may have begun a transaction, which is not the one it kept."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        old, other = TxnClient(peer, "id"), TxnClient(await connect(node), "id")
        await old.find()
        await old.init(enable2_pc=True)
        await old.write("t", b"prepared")
        describe = node.transactions.describe

        async def overtaken(transactional_id: str) -> object:
            monkeypatch.setattr(node.transactions, "describe", describe)
            assert (await other.init()).error_code == 0
            await other.write("t", b"others")
            return await describe(transactional_id)

        monkeypatch.setattr(node.transactions, "describe", overtaken)
        back = TxnClient(peer, "id")
        await back.init(enable2_pc=True, keep_prepared_txn=True)
        assert await other.send("t", b"go on") is ErrorCode.NONE
        assert await back.end() is ErrorCode.PRODUCER_FENCED
        assert await other.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"others", b"go on"]
        other.peer.close()

    run_with_node(tmp_path, scenario, transaction_two_phase_commit_enable="true")


def test_switching_two_phase_commit_off_ends_nothing_that_is_prepared(tmp_path: Path) -> None:
    """Its client may have promised to commit it. It has no time-out; who has it ends it, a newcomer aborts it, and
    nobody comes back to it."""

    async def run() -> None:
        node = await start_node(tmp_path, transaction_two_phase_commit_enable="true")
        peer = await connect(node)
        await peer.ensure_topic("t")
        there, gone = TxnClient(peer, "there"), TxnClient(peer, "gone")
        for client in (there, gone):
            await client.find()
            await client.init(enable2_pc=True)
            await client.write("t", client.transactional_id.encode())
        peer.close()
        await node.stop()
        node = await start_node(tmp_path, transaction_abort_timed_out_transaction_cleanup_interval_ms="20")
        there.peer = gone.peer = peer = await connect(node)
        late = TxnClient(peer, "late")
        await late.find()
        await late.init(timeout_ms=50)
        await late.write("t", b"late")
        while await late.settled() != "CompleteAbort":
            pass
        for client in (there, gone):
            assert await client.settled() == "Ongoing"
            newcomer = client.copy()
            refused = (await newcomer.init(enable2_pc=True, keep_prepared_txn=True)).error_code
            assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert (await newcomer.init(keep_prepared_txn=True)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await there.send("t", b"more") is ErrorCode.NONE
        assert await there.end_and_wait() is ErrorCode.NONE
        assert (await gone.copy().init()).error_code == ErrorCode.NONE
        assert await gone.settled() == "Empty"
        assert await read_committed(peer, "t") == [b"there", b"more"]
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_two_phase_commit_is_not_offered_otherwise(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        versions = await peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert next(key.max_version for key in versions.api_keys if key.api_key == 22) == 5
        features = await peer.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4, ApiVersionsResponse
        )
        assert {f.name: f.max_version_level for f in features.finalized_features}["transaction.version"] == 2

    run_with_node(tmp_path, scenario)
