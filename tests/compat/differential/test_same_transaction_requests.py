"""Kafka and our broker answer each API of coordinators alike, at its edges: every version, what is unknown, empty,
named twice, fenced or not allowed, and groups that go in the middle.

`test_same_transactions` has the long stories, `test_same_transaction_logs` what partitions do. Each part here is a list
of requests whose answers are compared one by one.
"""

import pytest

from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from mainstem.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from mainstem.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from mainstem.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitResponse
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from mainstem.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.compat.differential.recorded import OURS_TO_CHOOSE, Side, compare, until_ready
from tests.support.transactions import TxnClient, find_group, latest, read_committed

pytestmark = [pytest.mark.campaign, pytest.mark.kafka, pytest.mark.timeout(300)]

NOBODY = 800_000
"""Added to a producer id that was given: nobody has it."""
Topics = list[tuple[str, list[int]]]


# AddPartitionsToTxn


def added(client: TxnClient, topics: Topics, *, verify: bool = False, **other: object) -> AddPartitionsToTxnTransaction:
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=client.transactional_id,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        verify_only=verify,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics],
    )
    for name, value in other.items():
        setattr(wanted, name, value)
    return wanted


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_that_leaders_add_or_verify(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        await side.topics("a", "b")
        await until_ready(lambda: find_group(side.peer, "g"))
        one, two = await side.client(f"one{version}"), await side.client(f"two{version}")

        async def ask(label: str, *transactions: AddPartitionsToTxnTransaction) -> None:
            request = AddPartitionsToTxnRequest(transactions=list(transactions))
            await side.ask(label, request, version, AddPartitionsToTxnResponse)

        a: Topics = [("a", [0])]
        # A request without transactions is left out: Kafka never answers it.
        await ask("verified before it is added", added(one, a, verify=True))
        await ask("two, one with unknown partitions", added(one, a), added(two, [("b", [0, 7]), ("odd", [0])]))
        await ask("verified", added(one, [*a, ("b", [0])], verify=True))
        await ask("one verified, one added", added(one, a, verify=True), added(two, [("b", [0])]))
        await ask("of a higher epoch", added(one, a, verify=True, producer_epoch=one.epoch + 1))
        await ask("of a lower epoch", added(one, a, verify=True, producer_epoch=one.epoch - 1))
        await ask("of another producer", added(one, a, verify=True, producer_id=one.producer_id + NOBODY))
        for verify in (True, False):
            await ask(f"of an unknown id, {verify=}", added(one, a, verify=verify, transactional_id="nobody"))
            await ask(f"of no id, {verify=}", added(one, a, verify=verify, transactional_id=""))
            await ask(f"without partitions, {verify=}", added(one, [], verify=verify))
        await ask("unknown, verified", added(one, [("odd", [0]), *a], verify=True))
        for topic in ("__consumer_offsets", "__transaction_state"):
            await ask(f"{topic} verified", added(one, [(topic, [0])], verify=True))
        await ask("offsets added", added(one, [("__consumer_offsets", [0])]))
        ids = [one.transactional_id, two.transactional_id, "nobody", "", one.transactional_id]
        described = DescribeTransactionsRequest(transactional_ids=ids)
        await side.ask("described", described, 0, DescribeTransactionsResponse)
        for client in (one, two):
            side.note("end", await client.end_and_wait())
        idle = await side.client(f"idle{version}")
        await ask("nothing, to begin with", added(idle, []))
        await side.describe("nothing", idle)
        side.note("end of nothing", await idle.end_and_wait())

    compare(ports, part)


@pytest.mark.parametrize("version", range(4))
def test_partitions_that_clients_add(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        await side.topics("a", "b")
        client = await side.client(f"adds{version}", tv2=False)

        async def ask(label: str, topics: Topics, **other: object) -> None:
            only = added(client, topics, **other)  # type: ignore[arg-type]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=only.transactional_id,
                v3_and_below_producer_id=only.producer_id,
                v3_and_below_producer_epoch=only.producer_epoch,
                v3_and_below_topics=only.topics,
            )
            await side.ask(label, request, version, AddPartitionsToTxnResponse)

        await ask("none", [])
        await side.describe("none", client)
        await ask("twice", [("a", [0, 0]), ("b", [0])])
        await ask("unknown", [("a", [0, 5]), ("odd", [0])])
        await ask("another epoch", [("a", [0])], producer_epoch=client.epoch + 3)
        await ask("another producer", [("a", [0])], producer_id=client.producer_id + NOBODY)
        await ask("no id", [("a", [0])], transactional_id="")
        side.note("end", await client.end_and_wait())

    compare(ports, part)


@pytest.mark.parametrize("version", range(5))
def test_groups_that_clients_add(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        client = await side.client(f"groups{version}", tv2=False)
        for label, transactional_id, more_id, more_epoch, group in (
            ("fine", client.transactional_id, 0, 0, "g"),
            ("no id", "", 0, 0, "g"),
            ("unknown id", "nobody", 0, 0, "g"),
            ("another producer", client.transactional_id, NOBODY, 0, "g"),
            ("another epoch", client.transactional_id, 0, 1, "g"),
            ("no group", client.transactional_id, 0, 0, ""),
        ):
            request = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=client.producer_id + more_id,
                producer_epoch=client.epoch + more_epoch,
                group_id=group,
            )
            await side.ask(label, request, version, AddOffsetsToTxnResponse)
        side.note("end", await client.end_and_wait(commit=False))

    compare(ports, part)


# WriteTxnMarkers and DescribeProducers


def marker(
    producer_id: int, epoch: int, topics: Topics, coordinator_epoch: int = 0, version: int = 0, commit: bool = False
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
            )
        ]
    )


def test_markers_from_whoever_sends_them(ports: tuple[int, int]) -> None:
    async def part(side: Side) -> None:
        await side.topics("m")
        await until_ready(lambda: find_group(side.peer, "g"))
        await side.client("markers")
        m: Topics = [("m", [0])]
        fresh_id = OURS_TO_CHOOSE
        for version, transaction_version in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3)):
            fresh_id += 1
            for epoch, coordinator_epoch in ((0, 0), (0, -1), (5, 7), (5, 6), (4, 9), (5, 7), (32767, 9), (6, 9)):
                label = f"tv{transaction_version}: epoch {epoch} of coordinator {coordinator_epoch}"
                request = marker(fresh_id, epoch, m, coordinator_epoch, transaction_version, commit=True)
                await side.ask(label, request, version, WriteTxnMarkersResponse)
        await side.ask("none", WriteTxnMarkersRequest(markers=[]), 1, WriteTxnMarkersResponse)
        await side.ask("nowhere", marker(OURS_TO_CHOOSE, 0, []), 1, WriteTxnMarkersResponse)
        two = marker(OURS_TO_CHOOSE + 100, 0, [*m, ("odd", [0])])
        two.markers += marker(OURS_TO_CHOOSE + 101, 0, [("m", [0, 9])]).markers
        await side.ask("two", two, 1, WriteTxnMarkersResponse)
        for topic in ("__transaction_state", "__consumer_offsets"):
            request = marker(OURS_TO_CHOOSE + 102, 0, [(topic, [0])])
            await side.ask(topic, request, 1, WriteTxnMarkersResponse)
        await side.producers("of markers", "m")
        await side.producers("odd", "odd", "not a name!", "")

    compare(ports, part)


@pytest.mark.parametrize("tv2", [False, True], ids=["tv1", "tv2"])
def test_an_open_transaction_that_an_administrator_ends(ports: tuple[int, int], tv2: bool) -> None:
    async def part(side: Side) -> None:
        topic = f"hangs{tv2}"
        await side.topics(topic)
        client = await side.client(f"hangs{tv2}", tv2)
        await client.write(topic, b"first")
        for version, transaction_version, more in ((2, 2, 0), (2, 0, -1), (1, 0, 0)):
            request = marker(client.producer_id, client.epoch + more, [(topic, [0])], 0, transaction_version)
            await side.ask(f"tv{transaction_version}, {more}", request, version, WriteTxnMarkersResponse)
            await side.producers("meanwhile", topic)
        side.note("send", await client.send(topic, b"more"))
        side.note("end", await client.end_and_wait())
        await side.producers("after", topic)
        side.note("committed", await read_committed(side.peer, topic))
        side.note("ends", [await latest(side.peer, topic, isolation) for isolation in (0, 1)])

    compare(ports, part)


# InitProducerId, EndTxn, ListTransactions, FindCoordinator


@pytest.mark.parametrize("version", range(6))
def test_ids_that_are_asked_for(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        await side.client(f"known{version}")
        for transactional_id, timeout_ms, producer_id, epoch in (
            ("", 1000, -1, -1),
            ("new", 0, -1, -1),
            ("new", -1, -1, -1),
            ("new", 900_000, -1, -1),
            ("new", 900_001, -1, -1),
            ("new", 2**31 - 1, -1, -1),
            ("other", 1000, 5, -1),
            ("other", 1000, -1, 5),
            ("other", 1000, 123_456, 3),
            (None, 1000, -1, -1),
            (None, 1000, 77, 3),
            (None, 0, -1, -1),
            (None, -5, 8, -1),
        ):
            if version < 3 and (producer_id, epoch) != (-1, -1):
                continue
            request = InitProducerIdRequest(
                transactional_id=transactional_id and f"{transactional_id}{version}",
                transaction_timeout_ms=timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            answer = await side.peer.ask(request, version, InitProducerIdResponse)
            label = f"{transactional_id!r} {timeout_ms} {producer_id} {epoch}"
            side.note(label, (answer.error_code, answer.producer_id >= 0, answer.producer_epoch))

    compare(ports, part)


@pytest.mark.parametrize("version", range(6))
def test_ends_of_what_was_never_begun(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        client = await side.client(f"ends{version}", version == 5)
        for label, transactional_id, more_id, epoch, commit in (
            ("its own", client.transactional_id, 0, client.epoch, True),
            ("no id", "", 0, client.epoch, True),
            ("unknown id", "nobody", 0, client.epoch, True),
            ("another producer", client.transactional_id, NOBODY, client.epoch, True),
            ("higher epoch", client.transactional_id, 0, client.epoch + 1, True),
            ("lower epoch", client.transactional_id, 0, client.epoch - 1, True),
            ("no epoch", client.transactional_id, 0, -1, False),
        ):
            request = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=client.producer_id + more_id,
                producer_epoch=epoch,
                committed=commit,
            )
            await side.ask(label, request, version, EndTxnResponse)

    compare(ports, part)


def test_lists_by_producer_and_state(ports: tuple[int, int]) -> None:
    async def part(side: Side) -> None:
        await side.topics("listed")
        idle, done = await side.client("idle"), await side.client("done")
        await done.write("listed", b"x")
        await done.end_and_wait()
        for version in range(3):
            for states, ids in (
                (["CompleteCommit"], [done.producer_id]),
                (["Empty"], [done.producer_id]),
                ([], [done.producer_id]),
                ([], [done.producer_id, idle.producer_id, 55_555, -1]),
                ([""], [done.producer_id]),
                (["Empty", "Empty", "x", "x"], [idle.producer_id, idle.producer_id]),
            ):
                request = ListTransactionsRequest(state_filters=states, producer_id_filters=ids)
                await side.ask(f"{states} {len(ids)}", request, version, ListTransactionsResponse)

    compare(ports, part)


@pytest.mark.parametrize("version", range(7))
def test_coordinators_that_are_looked_for(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        await side.client("looked for")
        await until_ready(lambda: find_group(side.peer, "g"))
        for kind in (1, 0, 5, -1):
            for key in ("x", ""):
                if version == 0 and kind:
                    continue
                request = FindCoordinatorRequest(key=key, key_type=kind)
                if version >= 4:
                    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key, key])
                answer = await side.peer.ask(request, version, FindCoordinatorResponse)
                found = answer.coordinators if version >= 4 else [answer]
                codes = [(each.error_code, each.node_id, each.host, each.port > 0) for each in found]
                side.note(f"{kind} {key!r}", codes)

    compare(ports, part)


# Offsets


async def add_group(side: Side, client: TxnClient, group: str, version: int) -> None:
    if not client.tv2:
        request = AddOffsetsToTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            group_id=group,
        )
        await side.ask("group added", request, min(version, 4), AddOffsetsToTxnResponse)


async def fetch_offsets(side: Side, label: str, group: str, topics: Topics | None, version: int, stable: bool) -> None:
    request = OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
        require_stable=stable,
    )
    if version >= 8:
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        if topics is not None:
            wanted.topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
    await side.ask(f"{label}, {stable=}", request, version, OffsetFetchResponse)


@pytest.mark.parametrize("version", range(6))
def test_offsets_that_are_part_of_a_transaction(ports: tuple[int, int], version: int) -> None:
    async def part(side: Side) -> None:
        await side.topics("a", "b", "c")
        await until_ready(lambda: find_group(side.peer, "g"))
        client = await side.client(f"offsets{version}", version == 5)
        group = f"group{version}"
        a: Topics = [("a", [0])]

        async def commit(
            label: str,
            topics: Topics = a,
            group: str = group,
            offset: int = 3,
            metadata: str | None = "m",
            **other: object,
        ) -> None:
            request = client.offset_request(group, topics, offset, metadata)
            for name, value in other.items():
                setattr(request, name, value)
            await side.ask(label, request, version, TxnOffsetCommitResponse)

        if not client.tv2:
            await commit("not added")
            await add_group(side, client, group, version)
        await commit("unknown id", transactional_id="nobody")
        await commit("no id", transactional_id="")
        await commit("another producer", producer_id=client.producer_id + NOBODY)
        await commit("higher epoch", producer_epoch=client.epoch + 1)
        await commit("lower epoch", producer_epoch=client.epoch - 1)
        await commit("no group", group="")
        await commit("unknown partitions", [("a", [0, 9]), ("odd", [0])])
        await commit("nothing", [])
        await commit("too much metadata", metadata="x" * 5000)
        await commit("no metadata", metadata=None)
        await commit("negative", [("b", [0])], offset=-5)
        await commit("minus one", [("c", [0])], offset=-1)
        if version >= 3:
            await commit("a generation", generation_id=5)
            await commit("a member", member_id="m1")
            await commit("an instance", group_instance_id="i1")
            await commit("a member of another group", group=f"other{group}", generation_id=0, member_id="m1")
        await side.ask("group", DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse)
        for fetched in (5, 6, 7, 8, 9):
            for stable in (False, True) if fetched >= 7 else (False,):
                some: Topics = [("a", [0, 1]), ("b", [0]), ("odd", [0])]
                await fetch_offsets(side, "some, open", group, some, fetched, stable)
                await fetch_offsets(side, "all, open", group, None, fetched, stable)
        await plain_commit_and_deletion(side, group)
        side.note("end", await client.end_and_wait(commit=version % 2 == 1))
        await fetch_offsets(side, "after the end", group, None, 9, True)

    compare(ports, part)


async def plain_commit_and_deletion(side: Side, group: str) -> None:
    """What others do to a group's offsets while a transaction has some of them."""
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=44, committed_metadata="")
    plain = OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name="a", partitions=[place])]
    )
    await side.ask("a plain commit", plain, 8, OffsetCommitResponse)
    for stable in (False, True):
        await fetch_offsets(side, "all, after a plain commit", group, None, 9, stable)
        await fetch_offsets(side, "after a plain commit", group, [("a", [0])], 9, stable)
    first = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=first) for name in ("b", "odd")]
    await side.ask("deletion", OffsetDeleteRequest(group_id=group, topics=topics), 0, OffsetDeleteResponse)
    for stable in (False, True):
        await fetch_offsets(side, "after the deletion", group, [("a", [0]), ("b", [0])], 9, stable)


@pytest.mark.parametrize("tv2", [False, True], ids=["tv1", "tv2"])
def test_a_group_that_is_deleted_in_the_middle(ports: tuple[int, int], tv2: bool) -> None:
    async def part(side: Side) -> None:
        await side.topics("a")
        await until_ready(lambda: find_group(side.peer, "g"))
        client, group = await side.client(f"deleted{tv2}", tv2), f"deleted{tv2}"
        version = 5 if tv2 else 4
        await add_group(side, client, group, version)
        request = client.offset_request(group, [("a", [0])], 3)
        await side.ask("commit", request, version, TxnOffsetCommitResponse)
        delete = DeleteGroupsRequest(groups_names=[group])
        await side.ask("deletion", delete, 2, DeleteGroupsResponse)
        await fetch_offsets(side, "deleted", group, [("a", [0])], 9, True)
        side.note("end", await client.end_and_wait())
        await fetch_offsets(side, "ended", group, [("a", [0])], 9, True)
        await side.ask("deletion again", delete, 2, DeleteGroupsResponse)

    compare(ports, part)
