"""From Produce to Fetch over the wire, on a whole node in this process."""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainstem.broker.app import LOOKUPS_AT_A_TIME, Broker
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k01_fetch import FetchResponse
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from mainstem.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from mainstem.protocol.records import iterate_records
from mainstem.storage.fs import File
from mainstem.testing.files import MortalFileSystem
from tests.support.raw import Peer, batch_of, connect, fetch_request, produce_request, run_with_node, start_node


def values_in(records: bytes | None) -> list[bytes | None]:
    data = records or b""
    return [record.value for batch in iterate_batches(data, 0, len(data)) for record in iterate_records(batch)]


def test_what_was_produced_is_fetched(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        first = await peer.produce("orders", b"a", b"b")
        second = await peer.produce("orders", b"c", acks=1)
        assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
        found = await peer.fetch("orders", 0)
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
        assert values_in(found.records) == [b"a", b"b", b"c"]

    run_with_node(tmp_path, scenario)


def test_a_fetch_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a", b"b", b"c")
        found = await peer.fetch("orders", 1)
        assert values_in(found.records) == [b"a", b"b", b"c"]

    run_with_node(tmp_path, scenario)


def test_fetching_outside_the_log_is_out_of_range_and_at_its_end_is_empty(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        at_end = await peer.fetch("orders", 1)
        assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, b"", 1)
        assert (await peer.fetch("orders", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await peer.fetch("nowhere", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_with_node(tmp_path, scenario)


def test_a_long_poll_is_answered_when_data_comes_and_not_before(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        reader = await connect(node)
        waiting = asyncio.ensure_future(reader.fetch("orders", 0, max_wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await peer.produce("orders", b"a")
        assert values_in((await asyncio.wait_for(waiting, 2)).records) == [b"a"]
        reader.close()

    run_with_node(tmp_path, scenario)


def test_a_long_poll_waits_for_min_bytes_and_gives_what_there_is_at_its_end(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        reader = await connect(node)
        waiting = asyncio.ensure_future(reader.fetch("orders", 0, max_wait_ms=20_000, min_bytes=300))
        await peer.produce("orders", bytes(100))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await peer.produce("orders", bytes(100))
        assert len(values_in((await asyncio.wait_for(waiting, 2)).records)) == 2
        late = await reader.fetch("orders", 1, max_wait_ms=50, min_bytes=100_000)
        assert len(values_in(late.records)) == 1
        reader.close()

    run_with_node(tmp_path, scenario)


def test_a_session_tells_only_what_changed(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        opened = await peer.ask(fetch_request("orders", 0, session_epoch=0), 12, FetchResponse)
        assert opened.session_id > 0
        assert values_in(opened.responses[0].partitions[0].records) == [b"a"]
        moved = fetch_request("orders", 1, session_id=opened.session_id, session_epoch=1)
        quiet = await peer.ask(moved, 12, FetchResponse)
        assert (quiet.session_id, quiet.responses) == (opened.session_id, [])
        await peer.produce("orders", b"b")
        nothing_new = fetch_request("orders", 1, session_id=opened.session_id, session_epoch=2)
        nothing_new.topics = []
        news = await peer.ask(nothing_new, 12, FetchResponse)
        assert values_in(news.responses[0].partitions[0].records) == [b"b"]
        stale = fetch_request("orders", 1, session_id=opened.session_id, session_epoch=2)
        assert (await peer.ask(stale, 12, FetchResponse)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = fetch_request("orders", 1, session_id=12345, session_epoch=2)
        assert (await peer.ask(unknown, 12, FetchResponse)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run_with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        (batch_of(b"a")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch_of(bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["empty", "null", "two batches", "bad crc", "too large"],
)
def test_a_bad_batch_gets_kafkas_error_and_changes_nothing(
    tmp_path: Path, records: bytes | None, code: ErrorCode
) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        answer = await peer.ask(produce_request("orders", records), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == code
        assert (await peer.produce("orders", b"fine")).base_offset == 0

    run_with_node(tmp_path, scenario)


def test_acks_zero_has_no_answer_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        peer.send(produce_request("orders", batch_of(b"a"), acks=0), 9)
        assert values_in((await peer.fetch("orders", 0)).records) == [b"a"]
        peer.send(produce_request("nowhere", batch_of(b"a"), acks=0), 9)
        assert await peer.reader.read() == b""

    run_with_node(tmp_path, scenario)


def test_a_wrong_leader_epoch_is_fenced_or_unknown(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        partition = node.partitions.find("orders", 0)
        assert partition.leader is not None
        epoch = partition.leader.epoch
        assert (await peer.fetch("orders", 0, leader_epoch=epoch)).error_code == 0
        assert (await peer.fetch("orders", 0, leader_epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        partition.lead(1, epoch + 1, (1,), (1,), 1)
        assert (await peer.fetch("orders", 0, leader_epoch=epoch)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    run_with_node(tmp_path, scenario)


def test_offsets_are_found_by_kind_and_by_time(tmp_path: Path) -> None:
    async def ask(peer: Peer, timestamp: int) -> tuple[int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                )
            ],
        )
        found = (await peer.ask(request, 10, ListOffsetsResponse)).topics[0].partitions[0]
        assert found.error_code == 0
        return found.offset, found.timestamp

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for at in (1000, 3000, 2000):
            await peer.produce("orders", b"x", timestamp=at)
        assert await ask(peer, -1) == (3, -1)
        assert await ask(peer, -2) == (0, -1)
        assert await ask(peer, -3) == (1, 3000)
        assert await ask(peer, -4) == (0, -1)
        assert await ask(peer, -5) == (-1, -1)
        assert await ask(peer, 1500) == (1, 3000)
        assert await ask(peer, 3001) == (-1, -1)

    run_with_node(tmp_path, scenario)


def test_everything_acknowledged_is_there_after_a_clean_restart_in_a_new_leader_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        epochs = []
        for turn in range(3):
            node = await start_node(tmp_path)
            peer = await connect(node)
            await peer.ensure_topic("orders")
            assert (await peer.produce("orders", str(turn).encode())).base_offset == turn
            found = await peer.fetch("orders", 0)
            assert values_in(found.records) == [str(each).encode() for each in range(turn + 1)]
            data = found.records or b""
            last = list(iterate_batches(data, 0, len(data)))[-1]
            epochs.append(last.leader_epoch)
            peer.close()
            await node.stop()
        assert epochs == sorted(set(epochs))

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("acks", [-1, 1])
def test_with_flush_messages_1_nothing_is_visible_or_acknowledged_before_it_is_durable(
    tmp_path: Path, acks: int
) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        log = node.partitions.find("orders", 0).log
        for count in range(20):
            answer = await peer.produce("orders", b"x", acks=acks)
            assert answer.base_offset == count
            assert log.recovery_point == log.high_watermark == count + 1

    run_with_node(tmp_path, scenario, log_flush_interval_messages="1")


def test_with_flush_messages_1_the_kernel_has_synced_a_batch_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, int] = {}
    fdatasync = os.fdatasync

    def note(fd: int) -> None:
        size = os.fstat(fd).st_size
        fdatasync(fd)
        synced[os.readlink(f"/proc/self/fd/{fd}")] = size

    monkeypatch.setattr(os, "fdatasync", note)

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        path = Path(node.partitions.find("orders", 0).log.directory) / f"{0:020}.log"
        for _ in range(20):
            assert (await peer.produce("orders", b"x")).error_code == 0
            assert synced[str(path.resolve())] == path.stat().st_size

    run_with_node(tmp_path, scenario, log_flush_interval_messages="1")


def test_pipelined_produces_keep_their_order(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for count in range(100):
            peer.send(produce_request("orders", batch_of(str(count).encode())), 9)
        for count in range(100):
            answer = await peer.receive(ProduceResponse, 9)
            assert answer.responses[0].partition_responses[0].base_offset == count
        found = await peer.fetch("orders", 0)
        assert values_in(found.records) == [str(count).encode() for count in range(100)]
        assert BatchView(found.records or b"", 0).base_offset == 0

    run_with_node(tmp_path, scenario)


def test_a_topic_and_a_partition_are_answered_once_however_often_their_offsets_are_asked_for(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("t")
        await peer.produce("t", b"x")

        async def ask(*asked: tuple[str, list[int]]) -> list[tuple[str, list[tuple[int, int]]]]:
            topics = [
                ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsPartition(partition_index=at, timestamp=-1) for at in indexes]
                )
                for name, indexes in asked
            ]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
            answer = await peer.ask(request, 7, ListOffsetsResponse)
            return [
                (one.name, [(each.partition_index, each.error_code) for each in one.partitions])
                for one in answer.topics
            ]

        assert await ask(("t", [0]), ("t", [7])) == [("t", [(0, 0), (7, 3)])]
        assert await ask(("t", [0, 0]), ("u", [1])) == [("t", [(0, 42)]), ("u", [(1, 3)])]
        assert await ask(("t", [0]), ("t", [0])) == [("t", [(0, 42)])]

    run_with_node(tmp_path, scenario)


def test_a_partition_that_is_named_twice_is_fetched_once(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a")
        request = fetch_request("orders", 0)
        request.topics.append(fetch_request("orders", 1).topics[0])
        answer = await peer.ask(request, 12, FetchResponse)
        (partition,) = [one for topic in answer.responses for one in topic.partitions]
        assert (partition.error_code, partition.records) == (0, b"")

    run_with_node(tmp_path, scenario)


def test_a_request_sees_what_the_one_before_it_on_its_connection_did(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
        peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        peer.send(asked, 12)
        peer.send(produce_request("orders", batch_of(b"a")), 9)
        assert (await peer.receive(CreateTopicsResponse, 7)).topics[0].error_code == ErrorCode.NONE
        assert (await peer.receive(MetadataResponse, 12)).topics[0].error_code == ErrorCode.NONE
        assert (await peer.receive(ProduceResponse, 9)).responses[0].partition_responses[0].base_offset == 0

    run_with_node(tmp_path, scenario)


class ColdFile(File):
    """A file of which nothing is in memory, from when its file system says so."""

    def __init__(self, file: File, home: "ColdFiles") -> None:
        self.path = file.path
        self._file = file
        self._home = home

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self._home.broken and self._home.broken in self.path:
            raise ValueError("nobody expects this")
        return None if self._home.is_cold else self._file.read_cached(position, size)

    def write_at(self, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        self._file.write_at(position, buffers)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def descriptor(self) -> int:
        return self._file.descriptor()


class ColdFiles(MortalFileSystem):
    is_cold = False
    broken = ""

    def open(self, path: str, create: bool = False) -> File:
        return ColdFile(super().open(path, create), self)


def test_a_peer_that_leaves_while_its_records_are_read_from_the_disk_is_not_waited_for(tmp_path: Path) -> None:
    files = ColdFiles()

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        for _ in range(70):  # more than are remembered
            await peer.produce("orders", b"a")
        partition = node.partitions.find("orders", 0)
        files.is_cold = True
        # The only thread is busy for as long as we like.
        loop, go_on, threads = asyncio.get_running_loop(), threading.Event(), ThreadPoolExecutor(1)
        loop.set_default_executor(threads)
        busy = loop.run_in_executor(None, go_on.wait)
        try:
            reader = await connect(node)
            reader.send(fetch_request("orders", 0, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1), 12)
            while threads._work_queue.empty():
                await asyncio.sleep(0.001)
            reader.close()
            while node.descriptors.clients.count > 1:
                await asyncio.sleep(0.001)
        finally:
            go_on.set()
        await busy
        await loop.run_in_executor(None, time.sleep, 0)  # comes after what was to be read
        await asyncio.sleep(0.01)
        assert not len(partition.watchers)

    run_with_node(tmp_path, scenario, fs=files)


def test_a_fetch_that_fails_by_our_own_fault_behind_a_thread_is_not_left_waiting(tmp_path: Path) -> None:
    files = ColdFiles()

    async def scenario(node: Broker, peer: Peer) -> None:
        for name in ("orders", "broken"):
            await peer.ensure_topic(name)
            for _ in range(70):  # more than are remembered
                await peer.produce(name, b"a")
        files.is_cold = True
        files.broken = "broken-0"
        request = fetch_request("orders", 0)
        request.topics += fetch_request("broken", 0).topics
        unlucky = await connect(node)
        unlucky.send(request, 12)
        assert await asyncio.wait_for(unlucky.reader.read(), 10) == b""  # the connection has ended
        unlucky.close()
        assert len(values_in((await peer.fetch("orders", 0)).records)) == 70

    run_with_node(tmp_path, scenario, fs=files)


def test_only_a_few_batches_are_opened_at_a_time_to_find_records_by_their_time(tmp_path: Path) -> None:
    """A batch of a few bytes may expand to very many, and is in memory while its records are looked at."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        await peer.produce("orders", b"a", timestamp=500)
        loop, go_on, threads = asyncio.get_running_loop(), threading.Event(), ThreadPoolExecutor(1)
        loop.set_default_executor(threads)
        busy = loop.run_in_executor(None, go_on.wait)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=500)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])]
        )
        askers = [await connect(node) for _ in range(10)]
        try:
            for each in askers:
                each.send(request, 7)
            while threads._work_queue.qsize() < LOOKUPS_AT_A_TIME:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert threads._work_queue.qsize() == LOOKUPS_AT_A_TIME
        finally:
            go_on.set()
        await busy
        for each in askers:
            assert (await each.receive(ListOffsetsResponse, 7)).topics[0].partitions[0].offset == 0
            each.close()

    run_with_node(tmp_path, scenario)


def test_a_long_poll_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await peer.ensure_topic("orders")
        watchers = node.partitions.find("orders", 0).watchers
        reader = await connect(node)
        reader.send(fetch_request("orders", 0, max_wait_ms=2**31 - 1), 12)
        while not len(watchers):
            await asyncio.sleep(0.001)
        reader.close()
        while len(watchers):
            await asyncio.sleep(0.001)

    run_with_node(tmp_path, scenario)
