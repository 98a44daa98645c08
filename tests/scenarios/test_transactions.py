"""Transactions through a whole node, over the wire, by clients of both transaction versions."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from mainstem.broker.app import Broker
from mainstem.core.coordinator.effects import Outcome
from mainstem.core.txn.machine import TxnMachine
from mainstem.core.txn.states import Transaction
from mainstem.protocol.batch import LENGTH_AT
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from mainstem.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from mainstem.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitResponse
from mainstem.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from mainstem.protocol.primitives import ZERO_UUID
from mainstem.protocol.schema import Message
from tests.support.raw import Peer, connect, failing, run_with_node, start_node
from tests.support.transactions import TxnClient, committed_offset, find_group, latest, read_committed

both_versions = pytest.mark.parametrize("tv2", [False, True], ids=["tv1", "tv2"])

Scenario = Callable[[Broker, Peer], Awaitable[None]]


@both_versions
def test_a_transaction_is_seen_when_it_is_committed_and_not_before(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2)
        await client.begin()
        await client.write("t", b"a", b"b")
        await client.write("t", b"c")
        assert await read_committed(peer, "t") == []
        assert (await latest(peer, "t", 0), await latest(peer, "t", 1)) == (3, 0)
        assert await client.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"a", b"b", b"c"]
        assert (await latest(peer, "t", 0), await latest(peer, "t", 1)) == (4, 4)
        await client.write("t", b"d")
        assert await client.end_and_wait(commit=False) is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"a", b"b", b"c"]
        await client.write("t", b"e")
        await client.end_and_wait()
        assert await read_committed(peer, "t") == [b"a", b"b", b"c", b"e"]

    run_with_node(tmp_path, scenario)


@both_versions
def test_ends_are_told_again_as_the_first_time(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2)
        await client.begin()
        await client.write("t", b"a")
        before = client.copy()
        assert await client.end_and_wait() is ErrorCode.NONE
        assert await before.copy().end() is ErrorCode.NONE
        assert await before.copy().end(commit=False) is ErrorCode.INVALID_TXN_STATE
        if tv2:
            assert client.epoch == before.epoch + 1
            assert await client.copy().end() is ErrorCode.INVALID_TXN_STATE

    run_with_node(tmp_path, scenario)


@both_versions
def test_offsets_of_a_transaction_count_when_it_is_committed(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        client = TxnClient(peer, "id", tv2)
        await client.begin()
        assert await client.commit_offset("g", "t", 5) is ErrorCode.NONE
        assert await committed_offset(peer, "g", "t") == -1
        assert await committed_offset(peer, "g", "t", require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await client.end_and_wait()
        assert await committed_offset(peer, "g", "t", require_stable=True) == 5
        assert await client.commit_offset("g", "t", 9) is ErrorCode.NONE
        await client.end_and_wait(commit=False)
        assert await committed_offset(peer, "g", "t", require_stable=True) == 5

    run_with_node(tmp_path, scenario)


def test_offsets_that_were_not_added_are_refused(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await find_group(peer, "g")
        client = TxnClient(peer, "id", tv2=False)
        await client.begin()
        assert await client.send_offset("g", "t", 5) is ErrorCode.TRANSACTION_ABORTABLE
        late = client.copy()
        await client.init()
        assert await late.send_offset("g", "t", 5) is ErrorCode.INVALID_PRODUCER_EPOCH

    run_with_node(tmp_path, scenario)


def test_offsets_of_unknown_partitions_are_answered_first(tmp_path: Path) -> None:
    """As Kafka answers: a client that reads the first code only must not take it for all of them."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await peer.ensure_topic("u")
        await find_group(peer, "g")
        client = TxnClient(peer, "id")
        await client.begin()
        request = client.offset_request("g", [("t", [0])], 5)
        request.topics += client.offset_request("g", [("u", [0, 7])], 6).topics
        answer = await peer.ask(request, 5, TxnOffsetCommitResponse)
        assert [
            (topic.name, one.partition_index, ErrorCode(one.error_code))
            for topic in answer.topics
            for one in topic.partitions
        ] == [
            ("u", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("u", 0, ErrorCode.NONE),
            ("t", 0, ErrorCode.NONE),
        ]

    run_with_node(tmp_path, scenario)


def test_a_batch_that_was_not_added_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2=False)
        await client.begin()
        assert await client.copy().send("t", b"a") is ErrorCode.TRANSACTION_ABORTABLE
        old = client.copy()
        answer = await peer.ask(old.produce_request("t", b"a"), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
        assert await latest(peer, "t", 0) == 0

    run_with_node(tmp_path, scenario)


@both_versions
def test_a_late_batch_cannot_begin_a_transaction_that_nobody_ends(tmp_path: Path, tv2: bool) -> None:
    """KAFKA-14884 and its like: the last stable offset would stay where it is for good."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2)
        await client.begin()
        await client.write("t", b"a")
        late = client.copy()
        await client.end_and_wait(commit=False)
        refused = ErrorCode.INVALID_PRODUCER_EPOCH if tv2 else ErrorCode.TRANSACTION_ABORTABLE
        assert await late.send("t", b"late") is refused
        assert await latest(peer, "t", 0) == await latest(peer, "t", 1) == 2

    run_with_node(tmp_path, scenario)


def test_a_late_end_of_version_two_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("t", b"a")
        late = client.copy()
        await client.end_and_wait()
        await client.write("t", b"b")
        assert await late.copy().end() is ErrorCode.PRODUCER_FENCED
        assert await late.copy().end(commit=False) is ErrorCode.PRODUCER_FENCED
        assert await read_committed(peer, "t") == [b"a"]
        assert await client.settled() == "Ongoing"

    run_with_node(tmp_path, scenario)


@both_versions
def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        old = TxnClient(peer, "id", tv2)
        await old.begin()
        await old.write("t", b"zombie")
        new = TxnClient(peer, "id", tv2)
        await new.begin()
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
        assert await old.send("t", b"again") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end() is ErrorCode.PRODUCER_FENCED
        await new.write("t", b"new")
        await new.end_and_wait()
        assert await read_committed(peer, "t") == [b"new"]

    run_with_node(tmp_path, scenario)


@both_versions
def test_a_transaction_whose_time_is_up_is_aborted(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2)
        await client.find()
        assert (await client.init(timeout_ms=50)).error_code == 0
        await client.write("t", b"late")
        while await latest(peer, "t", 1) < 2:
            await asyncio.sleep(0.01)
        assert await client.send("t", b"later") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await read_committed(peer, "t") == []

    run_with_node(tmp_path, scenario, transaction_abort_timed_out_transaction_cleanup_interval_ms="20")


def test_a_transaction_that_cannot_be_aborted_now_does_not_keep_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        clients = first, second = TxnClient(peer, "first"), TxnClient(peer, "second")
        for client in clients:
            await client.find()
            await client.init(timeout_ms=1)
        abort = TxnMachine.abort_timed_out

        def refused(machine: TxnMachine, ticket: object, timed_out: Transaction, *more: int) -> Outcome:
            if timed_out.transactional_id == "first":
                raise RemoteError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")
            return abort(machine, ticket, timed_out, *more)

        with monkeypatch.context() as patch:
            patch.setattr(TxnMachine, "abort_timed_out", refused)
            for client in clients:
                await client.write("t", b"late")
            while await second.settled() != "CompleteAbort":
                await asyncio.sleep(0.01)
            assert await first.settled() == "Ongoing"
        while await first.settled() != "CompleteAbort":
            await asyncio.sleep(0.01)

    run_with_node(
        tmp_path,
        scenario,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="20",
        transaction_state_log_num_partitions="1",
    )


def test_a_transaction_completes_when_one_of_its_topics_is_gone(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        for topic in ("gone", "stays"):
            await peer.ensure_topic(topic)
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("gone", b"a")
        await client.write("stays", b"b")
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone", topic_id=ZERO_UUID)], timeout_ms=5000)
        assert (await peer.ask(delete, 6, DeleteTopicsResponse)).responses[0].error_code == 0
        assert await client.end_and_wait() is ErrorCode.NONE
        assert await client.settled() == "CompleteCommit"
        assert await read_committed(peer, "stays") == [b"b"]

    run_with_node(tmp_path, scenario)


@both_versions
def test_a_decided_transaction_completes_when_its_topics_go_before_their_markers(tmp_path: Path, tv2: bool) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("gone")
        client = TxnClient(peer, "id", tv2)
        await client.begin()
        await client.write("gone", b"a")
        with failing(node, WriteTxnMarkersRequest, ErrorCode.NETWORK_EXCEPTION):
            assert await client.end() is ErrorCode.NONE
            delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone", topic_id=ZERO_UUID)], timeout_ms=5000)
            assert (await peer.ask(delete, 6, DeleteTopicsResponse)).responses[0].error_code == 0
            assert await client.settled() == "CompleteCommit"
        await peer.ensure_topic("gone")
        client.sequences.clear()
        await client.write("gone", b"b")
        assert await client.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "gone") == [b"b"]

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize("commit", [True, False])
@both_versions
def test_a_decided_transaction_is_completed_by_the_next_start(tmp_path: Path, tv2: bool, commit: bool) -> None:
    """Markers that cannot be written are written when the node is back; open transactions stay open."""

    async def run() -> None:
        node = await start_node(tmp_path)
        peer = await connect(node)
        await peer.ensure_topic("t")
        open_one, decided = TxnClient(peer, "open", tv2), TxnClient(peer, "decided", tv2)
        for client in (decided, open_one):
            await client.begin()
        await decided.write("t", b"decided")
        await open_one.write("t", b"open")

        async def lost(*_: object) -> object:
            raise RemoteError(ErrorCode.NETWORK_EXCEPTION, "lost")

        node.peers._carry = lost  # type: ignore[assignment]
        assert await decided.end(commit) is ErrorCode.NONE
        assert (await decided.describe()).transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
        assert await decided.copy().end(commit) is ErrorCode.CONCURRENT_TRANSACTIONS
        peer.close()
        await node.stop()

        node = await start_node(tmp_path)
        decided.peer = open_one.peer = peer = await connect(node)
        assert await decided.settled() == ("CompleteCommit" if commit else "CompleteAbort")
        assert await open_one.settled() == "Ongoing"  # its coordinator may be loading for longer than the other's
        assert await latest(peer, "t", 1) == 1
        assert await open_one.send("t", b"more") is ErrorCode.NONE
        assert await open_one.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"decided"] * commit + [b"open", b"more"]
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "PrepareCommit"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "CompleteCommit"),
    ],
)
def test_markers_that_will_never_be_taken_are_sent_once(tmp_path: Path, code: ErrorCode, state: str) -> None:
    """Another coordinator ends what this one had to end; and a partition that knows a later epoch does not hang it."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("t", b"a")
        send, asked = node.peers.send, 0

        async def refused(node_id: int, message: Message, version: int) -> Message:
            nonlocal asked
            answer = await send(node_id, message, version)
            if isinstance(answer, WriteTxnMarkersResponse):
                asked += 1
                answer.markers[0].topics[0].partitions[0].error_code = code
            return answer

        node.peers.send = refused  # type: ignore[method-assign]
        assert await client.end() is ErrorCode.NONE
        while asked == 0 or node.transactions._markers._tasks:
            await asyncio.sleep(0)
        assert asked == 1
        while (await client.describe()).transaction_state != state:
            pass

    run_with_node(tmp_path, scenario)


def test_a_long_poll_across_an_abort_has_the_aborted_list(tmp_path: Path) -> None:
    """KAFKA-5376."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("t", b"x")
        reader = await connect(node)
        polling = asyncio.ensure_future(reader.fetch("t", 0, isolation_level=1, max_wait_ms=10_000))
        await asyncio.sleep(0.05)
        assert not polling.done()
        await client.end(commit=False)
        found = await polling
        assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []] == [
            (client.producer_id, 0)
        ]
        reader.close()

    run_with_node(tmp_path, scenario)


def test_aborted_transactions_are_listed_by_first_offset_also_after_a_restart_and_a_roll(tmp_path: Path) -> None:
    async def run() -> None:
        node = await start_node(tmp_path)
        peer = await connect(node)
        await peer.ensure_topic("t")
        clients = [TxnClient(peer, f"id{n}") for n in range(4)]
        for client in clients:
            await client.begin()
            await client.write("t", b"v%d" % clients.index(client))
        for client in (clients[2], clients[0]):
            await client.end_and_wait(commit=False)
        node.partitions.find("t", 0).log.roll(node.clock.wall_ms())
        await clients[3].end_and_wait(commit=True)
        await clients[1].end_and_wait(commit=False)
        for _ in range(2):
            found = await peer.fetch("t", 0, isolation_level=1)
            listed = [(one.first_offset, one.producer_id) for one in found.aborted_transactions or []]
            assert listed == [(n, clients[n].producer_id) for n in (0, 1, 2)]
            assert await read_committed(peer, "t") == [b"v3"]
            peer.close()
            await node.stop()
            node = await start_node(tmp_path)
            peer = await connect(node)
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_requests_behind_the_first_of_a_transaction_keep_their_order(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        for _ in range(3):
            for value in (b"1", b"2", b"3", b"4", b"5"):
                peer.send(client.produce_request("t", value), 12)
            for _ in range(5):
                answer = await peer.receive(ProduceResponse, 12)
                assert answer.responses[0].partition_responses[0].error_code == 0
            await client.end()
        await client.settled()
        assert await read_committed(peer, "t") == [b"1", b"2", b"3", b"4", b"5"] * 3

    run_with_node(tmp_path, scenario)


def test_transactions_are_listed_and_filtered(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        open_one, idle = TxnClient(peer, "sink.open"), TxnClient(peer, "idle")
        for client in (open_one, idle):
            await client.begin()
        await open_one.write("t", b"x")

        async def listed(version: int = 2, **filters: object) -> list[str]:
            request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})  # type: ignore[arg-type]
            answer = await peer.ask(request, version, ListTransactionsResponse)
            assert answer.error_code == 0
            return sorted(f"{one.transactional_id} {one.transaction_state}" for one in answer.transaction_states)

        assert await listed() == ["idle Empty", "sink.open Ongoing"]
        assert await listed(state_filters=["Ongoing"]) == ["sink.open Ongoing"]
        assert await listed(producer_id_filters=[idle.producer_id]) == ["idle Empty"]
        assert await listed(transactional_id_pattern="sink\\..*") == ["sink.open Ongoing"]
        assert await listed(duration_filter=600_000, state_filters=["Ongoing"]) == []
        odd = await peer.ask(
            ListTransactionsRequest(state_filters=["Odd", "Dead", "Odd"], producer_id_filters=[]),
            2,
            ListTransactionsResponse,
        )
        assert (odd.unknown_state_filters, odd.transaction_states) == (["Odd"], [])
        bad = await peer.ask(
            ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="("),
            2,
            ListTransactionsResponse,
        )
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        described = await open_one.describe()
        assert [(one.topic, one.partitions) for one in described.topics] == [("t", [0])]
        missing = TxnClient(peer, "missing")
        assert (await missing.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run_with_node(tmp_path, scenario)


def test_no_pattern_of_a_client_holds_the_broker_up(tmp_path: Path) -> None:
    """A pattern that backtracks would take 2^60 steps on this id; RE2, as in Kafka, takes one per character."""

    async def scenario(node: Broker, peer: Peer) -> None:
        client = TxnClient(peer, "a" * 60 + "!")
        await client.begin()
        found = {}
        for pattern in ("(a+)+", "(a+)+$", "(a|a)*b", "(?i)A+!", r"[[:alpha:]]+!", r"(?=a)a+!", r"(a)\1*!", "("):
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
            )
            answer = await peer.ask(request, 2, ListTransactionsResponse)
            found[pattern] = (ErrorCode(answer.error_code), len(answer.transaction_states))
        invalid = (ErrorCode.INVALID_REGULAR_EXPRESSION, 0)
        assert found == {
            "(a+)+": (ErrorCode.NONE, 0),
            "(a+)+$": (ErrorCode.NONE, 0),
            "(a|a)*b": (ErrorCode.NONE, 0),
            "(?i)A+!": (ErrorCode.NONE, 1),
            r"[[:alpha:]]+!": (ErrorCode.NONE, 1),
            r"(?=a)a+!": invalid,
            r"(a)\1*!": invalid,
            "(": invalid,
        }

    run_with_node(tmp_path, scenario)


def test_an_administrator_can_end_what_hangs(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("t", b"x")
        marker = WritableTxnMarker(
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7])],
            coordinator_epoch=0,
        )
        answer = await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        codes = [one.error_code for one in answer.markers[0].topics[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await latest(peer, "t", 1) == 2
        marker.topics = []
        answer = await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        assert answer.markers == [], "of a marker for no partition nothing is told"

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (-1, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (7, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (7, -2, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_of_nobody_is_not_written(tmp_path: Path, producer_id: int, epoch: int, code: ErrorCode) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        answer = await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        assert answer.markers[0].topics[0].partitions[0].error_code == code
        assert await latest(peer, "t", 0) == 0

    run_with_node(tmp_path, scenario)


def test_a_producer_without_a_transactional_id_may_not_send_batches_of_one(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        request = client.produce_request("t", b"x")
        request.transactional_id = None
        wanted = request.topic_data[0].partition_data[0]
        records = wanted.records
        assert records is not None
        # That comes before whatever else is wrong with the request or the batch: two of them, or one that is too short.
        short = records[:LENGTH_AT] + (20).to_bytes(4, "big") + records[LENGTH_AT + 4 :]
        for acks, sent in ((-1, records), (5, records), (-1, records + records), (-1, short)):
            request.acks, wanted.records = acks, sent
            answer = await peer.ask(request, 12, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run_with_node(tmp_path, scenario)


def test_a_batch_that_cannot_be_verified_now_is_to_be_tried_again(tmp_path: Path) -> None:
    """The coordinator's own codes mean nothing to a producer that asked a leader."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        for tv2 in (False, True):
            client = TxnClient(peer, f"id-{tv2}", tv2)
            await client.begin()
            if not tv2:
                assert await client.add(("t", 0)) is ErrorCode.NONE
            for code in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            ):
                with failing(node, AddPartitionsToTxnRequest, code):
                    assert await client.copy().send("t", b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
            assert await client.send("t", b"a") is ErrorCode.NONE

    run_with_node(tmp_path, scenario)


def test_a_batch_of_version_one_waits_by_trying_again_while_a_transaction_completes(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id", tv2=False)
        await client.begin()
        assert await client.add(("t", 0)) is ErrorCode.NONE
        with failing(node, WriteTxnMarkersRequest, ErrorCode.NETWORK_EXCEPTION):
            assert await client.end() is ErrorCode.NONE
            assert await client.send("t", b"late") is ErrorCode.NOT_ENOUGH_REPLICAS
        await client.settled()

    run_with_node(tmp_path, scenario)


def test_the_next_transaction_of_version_two_waits_a_little_for_the_last_to_complete(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        client = TxnClient(peer, "id")
        await client.begin()
        await client.write("t", b"a")
        asked = 0
        with failing(node, WriteTxnMarkersRequest, ErrorCode.NETWORK_EXCEPTION):
            assert await client.end() is ErrorCode.NONE
            send = node.peers.send

            async def counted(node_id: int, message: Message, version: int) -> Message:
                nonlocal asked
                asked += isinstance(message, AddPartitionsToTxnRequest)
                return await send(node_id, message, version)

            node.peers.send = counted  # type: ignore[method-assign]
            peer.send(client.produce_request("t", b"b"), 12)
            while asked < 3:
                await asyncio.sleep(0)
        answer = await peer.receive(ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert await client.end_and_wait() is ErrorCode.NONE
        assert await read_committed(peer, "t") == [b"a", b"b"]

    run_with_node(tmp_path, scenario, add_partitions_to_txn_retry_backoff_max_ms="20000")


def most_in_one_turn(loop: asyncio.AbstractEventLoop, count: Callable[[], int]) -> Callable[[], int]:
    """Looks at a count in every turn of the loop until the function that it returns is called: by how much it rose in
    one turn at most."""
    seen = [count()]
    stopped = False

    def look() -> None:
        seen.append(count())
        if not stopped:
            loop.call_soon(look)

    def stop() -> int:
        nonlocal stopped
        stopped = True
        return max(after - before for before, after in pairwise([*seen, count()]))

    loop.call_soon(look)
    return stop


def test_others_have_their_turn_while_many_markers_are_written(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        log = node.partitions.find("t", 0).log
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0] * 500)],
            coordinator_epoch=0,
        )
        stop = most_in_one_turn(node.loop, lambda: int(log.log_end))
        await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        assert 0 < stop() <= 64
        assert log.log_end == 500

    run_with_node(tmp_path, scenario)


def test_others_have_their_turn_while_many_ids_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await TxnClient(peer, "id").begin()
        described = 0
        describe = node.transactions.describe

        async def counted(transactional_id: str) -> object:
            nonlocal described
            described += 1
            return await describe(transactional_id)

        monkeypatch.setattr(node.transactions, "describe", counted)
        stop = most_in_one_turn(node.loop, lambda: described)
        request = DescribeTransactionsRequest(transactional_ids=["id"] * 500)
        answer = await peer.ask(request, 0, DescribeTransactionsResponse)
        assert 0 < stop() <= 100
        assert [each.transaction_state for each in answer.transaction_states] == ["Empty"] * 500

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_end_is_told_in_a_code_that_its_version_knows(tmp_path: Path, version: int) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        client = TxnClient(peer, "id")
        await client.begin()
        old = client.copy()
        await client.init()
        request = EndTxnRequest(
            transactional_id="id", producer_id=old.producer_id, producer_epoch=old.epoch, committed=True
        )
        code = ErrorCode((await peer.ask(request, version, EndTxnResponse)).error_code)
        assert code is (ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED)

    run_with_node(tmp_path, scenario)


def test_transactions_are_not_listed_while_some_are_still_being_read(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await TxnClient(peer, "id").begin()
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        shard = next(iter(node.transactions.runtime.shards.values()))
        shard._unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        answer = await peer.ask(request, 0, ListTransactionsResponse)
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        shard._unavailable = None
        answer = await peer.ask(request, 0, ListTransactionsResponse)
        assert [one.transactional_id for one in answer.transaction_states] == ["id"]

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["from the start", "once a coordinator has begun"])
@pytest.mark.parametrize("level", [1, 0])
def test_transactions_complete_at_lower_levels_too(tmp_path: Path, level: int, meanwhile: bool) -> None:
    """T12: ended by their client, or by the next one. Version 2 is refused where records have no place for it."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        if meanwhile:
            await TxnClient(peer, "newer").begin()
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
        updated = await peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse)
        assert updated.error_code == 0, updated
        client = TxnClient(peer, "id", tv2=False)
        await client.begin()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            await client.write("t", value)
            assert await client.end_and_wait(commit) is ErrorCode.NONE
        await client.write("t", b"left open")
        later = TxnClient(peer, "id", tv2=False)
        assert (await later.init()).error_code == 0
        assert await client.end() is ErrorCode.PRODUCER_FENCED
        assert await read_committed(peer, "t") == [b"a", b"c"]
        newer = TxnClient(peer, "newer")
        await newer.begin()
        assert await newer.send("t", b"d") is (ErrorCode.UNSUPPORTED_VERSION if level == 0 else ErrorCode.NONE)

    run_with_node(tmp_path, scenario)


def test_the_batches_of_one_transactional_request_are_of_one_producer(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await peer.ensure_topic("u")
        one, two = TxnClient(peer, "one"), TxnClient(peer, "two")
        await one.begin()
        await two.begin()
        request = one.produce_request("t", b"a")
        request.topic_data += two.produce_request("u", b"b").topic_data
        answer = await peer.ask(request, 12, ProduceResponse)
        codes = [ErrorCode(each.partition_responses[0].error_code) for each in answer.responses]
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert (await one.describe()).transaction_state == "Empty"

    run_with_node(tmp_path, scenario)
