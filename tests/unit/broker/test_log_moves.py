"""Partitions on their way to another directory, and what else happens to their logs meanwhile."""

import asyncio
import errno
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mainstem.broker.apis import k34_alter_replica_log_dirs
from mainstem.broker.partition import Partition
from mainstem.broker.partitions import Partitions
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from mainstem.protocol.messages.metadata_records import RemoveTopicRecord
from mainstem.storage.flushing import FlushJob
from mainstem.storage.log_directory import LogDirectory
from tests.support.logs import NOW_MS, batch

from .fake_broker import CLUSTER, DIRECTORIES, NODE, FakeBroker, context, run


def elsewhere(broker: FakeBroker) -> LogDirectory:
    dirs = broker.partitions.dirs
    return next(each for each in dirs.directories if each is not dirs.directory_of("t", 0))


async def served(broker: FakeBroker) -> Partition:
    """A partition with a record, which is durable."""
    broker.controller.answer = broker.assign
    await broker.create_topic("t")
    partition = broker.produce("t", 0, batch(b"value"))
    await partition.settle()
    return partition


async def moved(broker: FakeBroker) -> None:
    while broker.partitions.dirs.moves:
        await asyncio.sleep(0.001)


def test_a_move_goes_on_where_retention_took_what_it_was_looking_for() -> None:
    """It used to end in an error and to stay listed: never finished, never begun again."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t", retention_bytes="1", internal_segment_bytes="200")
        for number in range(5):
            partition = broker.produce("t", 0, batch(b"%d" % number * 50, timestamp=NOW_MS + number))
        broker.loop.set_default_executor(ThreadPoolExecutor(1))
        await partition.settle()
        held = threading.Event()
        target = elsewhere(broker)
        begun = broker.loop.create_task(broker.log_moves.begin(partition, target))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the thread has been asked to make a folder for the copy
        blocked = broker.loop.run_in_executor(None, held.wait, 10)
        await begun
        await asyncio.sleep(0)  # it waits for the thread, to look for the first batch
        assert partition.log.delete_old_segments(NOW_MS) > 0
        held.set()
        await blocked
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is target
        assert (partition.log.log_start, partition.log.log_end) == (4, 5)

    run(story)


def test_a_move_that_cannot_go_on_is_given_up_and_can_be_asked_for_again() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"value"))
        source, target = broker.partitions.dirs.directory_of("t", 0), elsewhere(broker)
        segment = partition.log.active_segment
        whole = broker.fs.open(segment.log.path)
        last = whole.read_at(segment.size - 1, 1)
        whole.write_at(segment.size - 1, [bytes([last[0] ^ 1])])  # a batch that no copy takes
        await broker.log_moves.begin(partition, target)
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is source
        whole.write_at(segment.size - 1, [last])
        await broker.log_moves.begin(partition, target)
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is target

    run(story)


@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"])
def test_a_partition_moves_though_batches_come_all_the_time(flush_messages: str) -> None:
    """There is never a moment when the copy has everything, nor one without a flush under way."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t", flush_messages=flush_messages)
        turns = broker.partitions.flush_turns
        room = turns.room
        partition = broker.produce("t", 0, batch(b"first"))
        target = elsewhere(broker)
        await broker.log_moves.begin(partition, target)
        committed: list[tuple[int, ErrorCode]] = []
        count = 1
        while broker.partitions.dirs.moves:
            broker.produce("t", 0, batch(b"%d" % count))
            count += 1
            partition.when_committed(count, lambda code, end=count: committed.append((end, code)))  # type: ignore[misc]
            await asyncio.sleep(0)
        await partition.settle()
        assert broker.partitions.dirs.directory_of("t", 0) is target
        assert partition.log.log_end == partition.high_watermark == count
        assert committed == [(end, ErrorCode.NONE) for end in range(2, count + 1)]
        assert turns.room == room, "what its flushes held is there for others again"

    run(story)


def test_a_partition_moves_only_when_the_metadata_names_one_of_the_two_directories() -> None:
    """Or a crash between the renames would leave two folders, and nobody who could tell which of them to keep."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda request: RemoteError(ErrorCode.REQUEST_TIMED_OUT)
        topic_id = await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"value"))
        source, target = broker.partitions.dirs.directory_of("t", 0), elsewhere(broker)
        assert source is not None
        await broker.log_moves.begin(partition, target)
        copy = broker.partitions.dirs.moves["t", 0].log
        while copy.recovery_point < 1:
            await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0)
        assert broker.partitions.dirs.directory_of("t", 0) is source
        assert broker.partitions.dirs.moves
        broker.controller.answer = broker.assign
        broker.name_directory(topic_id, 0, source.directory_id)
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is target

    run(story)


def test_moves_of_many_partitions_leave_the_loop_to_others_between_two_of_them() -> None:
    """One request may name thousands: each costs a few fsyncs, and nobody waits for those of two in a row."""

    class Turns:
        """The partitions for which the disk was waited for on the loop's own thread, since the loop last turned."""

        def __init__(self, broker: FakeBroker) -> None:
            self._loop_thread = threading.get_ident()
            self._broker = broker
            self._now: set[str] = set()
            self.most: set[str] = set()
            broker.fs.on_operation = self._operation

        def _operation(self, operation: str, path: str, position: int, size: int) -> None:
            place = path.split("/")[2] if path.count("/") > 1 else ""
            waits = operation in ("sync", "sync_directory", "rename")
            if waits and threading.get_ident() == self._loop_thread and place.startswith("t-"):
                self._now.add(place.split(".")[0])
                self.most = max(self.most, self._now, key=len)

        def turn(self) -> None:
            self._now = set()
            self._broker.loop.call_soon(self.turn)

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t", 8)
        for index in range(8):
            await broker.produce("t", index, batch(b"value")).settle()
        wanted: dict[str, list[int]] = {}
        for index in range(8):
            home = broker.partitions.dirs.directory_of("t", index)
            wanted.setdefault("/d2" if home is not None and home.path == "/d1" else "/d1", []).append(index)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="t", partitions=indexes)])
                for path, indexes in wanted.items()
            ]
        )
        turns = Turns(broker)
        turns.turn()
        answer = await k34_alter_replica_log_dirs.handle(broker.as_broker, context(34, 2), request)
        assert [each.error_code for topic in answer.results for each in topic.partitions] == [0] * 8
        await moved(broker)
        assert len(turns.most) == 1, turns.most
        for path, indexes in wanted.items():
            for index in indexes:
                home = broker.partitions.dirs.directory_of("t", index)
                assert home is not None
                assert home.path == path

    run(story)


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"num_replica_alter_log_dirs_threads": "1"}, 1)])
def test_no_more_partitions_are_copied_at_once_than_the_setting_says(given: dict[str, str], expected: int) -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        broker.log_moves.piece_bytes = 1
        await broker.create_topic("t", 6)
        dirs = broker.partitions.dirs
        for index in range(6):
            for _ in range(4):
                partition = broker.produce("t", index, batch(b"value"))
            home = dirs.directory_of("t", index)
            await broker.log_moves.begin(partition, next(each for each in dirs.directories if each is not home))
        under_way = 0
        while dirs.moves:
            under_way = max(under_way, sum(1 for move in dirs.moves.values() if 0 < move.log.log_end < 4))
            await asyncio.sleep(0)
        assert 0 < under_way <= expected

    run(story, **given)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_partition_deleted_while_the_folder_of_its_copy_is_made_is_told_and_leaves_nothing(
    is_made_anew: bool,
) -> None:
    """Also where another topic has its name by then (seed 400004282): no disk has failed."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        topic_id = await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"value"))
        await partition.settle()
        await broker.create_topic("another")
        broker.loop.set_default_executor(ThreadPoolExecutor(1))
        held = threading.Event()
        blocked = broker.loop.run_in_executor(None, held.wait, 10)
        begun = broker.loop.create_task(broker.log_moves.begin(partition, elsewhere(broker)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        deleted = broker.loop.create_task(broker.replay(RemoveTopicRecord(topic_id=topic_id)))
        await asyncio.sleep(0)
        if is_made_anew:
            broker.partitions.by_place["t", 0] = broker.partitions.by_place["another", 0]
        held.set()
        await blocked
        await deleted
        with pytest.raises(RemoteError) as caught:
            await begun
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        dirs = broker.partitions.dirs
        assert not dirs.moves
        dirs.remove_deleted(NOW_MS)
        assert not [name for path in ("/d1", "/d2") for name in broker.fs.list_directory(path) if "-future" in name]

    run(story)


def test_a_stop_while_the_folder_of_a_copy_is_made_waits_for_it() -> None:
    """Nothing is made in a directory that was closed."""

    async def story(broker: FakeBroker) -> None:
        partition = await served(broker)
        broker.loop.set_default_executor(ThreadPoolExecutor(1))
        held = threading.Event()
        blocked = broker.loop.run_in_executor(None, held.wait, 10)
        asking = broker.loop.create_task(broker.log_moves.begin(partition, elsewhere(broker)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        stopped = broker.loop.create_task(broker.log_moves.stop())
        await asyncio.sleep(0)
        assert not stopped.done()
        held.set()
        await blocked
        await stopped
        folders = [name for path in ("/d1", "/d2") for name in broker.fs.list_directory(path) if "-future" in name]
        assert len(folders) == 1, "the next start begins it anew"

    run(story)


def test_a_move_that_cannot_begin_is_no_surprise_when_who_asked_for_it_is_gone() -> None:
    """The loop reported an error that nobody had looked at (seed 1003282)."""

    async def story(broker: FakeBroker) -> None:
        partition = await served(broker)
        reported: list[dict[str, Any]] = []
        broker.loop.set_exception_handler(lambda loop, context: reported.append(context))
        broker.loop.set_default_executor(ThreadPoolExecutor(1))
        held = threading.Event()
        blocked = broker.loop.run_in_executor(None, held.wait, 10)
        target = elsewhere(broker)
        asking = broker.loop.create_task(broker.log_moves.begin(partition, target))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()  # the connection is closed
        await asyncio.wait([asking])
        del asking
        broker.partitions.directory_failed(target, OSError(errno.EIO, "gone"))
        held.set()
        await blocked
        await broker.log_moves.stop()
        assert not broker.partitions.dirs.moves
        gc.collect()
        assert reported == []

    run(story)


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_interrupted_move_is_begun_anew_unless_somebody_asked_for_another_since(is_asked: bool) -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"value"))
        dirs = broker.partitions.dirs
        source, target = dirs.directory_of("t", 0), elsewhere(broker)
        assert source is not None
        dirs.interrupted_moves["t", 0] = target
        broker.log_moves.resume()
        if is_asked:
            await broker.log_moves.begin(partition, source)
        while dirs.interrupted_moves:
            await asyncio.sleep(0.001)
        await moved(broker)
        assert dirs.directory_of("t", 0) is (source if is_asked else target)

    run(story)


class HoldsFlushes(ThreadPoolExecutor):
    """Begins no flush before it may."""

    def __init__(self) -> None:
        super().__init__(4)
        self.asked = threading.Event()
        self.may_begin = threading.Event()

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        if not isinstance(getattr(function, "__self__", None), FlushJob):
            return super().submit(function, *args, **options)
        self.asked.set()
        return super().submit(self._late, function, *args)

    def _late(self, function: Callable[..., Any], *args: Any) -> Any:
        assert self.may_begin.wait(10)
        return function(*args)


def test_the_copy_of_a_move_that_was_ended_stays_while_a_thread_is_at_work_in_it() -> None:
    """Its removal and the thread met each other's files, which was taken for a failed disk."""

    async def story(broker: FakeBroker) -> None:
        partition = await served(broker)
        dirs = broker.partitions.dirs
        source, target = dirs.directory_of("t", 0), elsewhere(broker)
        assert source is not None
        executor = HoldsFlushes()
        broker.loop.set_default_executor(executor)
        await broker.log_moves.begin(partition, target)
        folder = dirs.moves["t", 0].folder
        while not executor.asked.is_set():
            await asyncio.sleep(0.001)
        await broker.log_moves.begin(partition, source)
        assert dirs.moves == {}
        assert dirs.remove_deleted(NOW_MS) == 0
        assert broker.fs.is_directory(folder)
        executor.may_begin.set()
        await broker.log_moves.stop()
        assert not broker.fs.exists(folder)
        assert dirs.remove_deleted(NOW_MS) == 1
        assert dirs.online == dirs.directories

    run(story)


def test_a_move_that_was_taken_back_is_not_begun_anew_by_the_next_start() -> None:
    async def story(broker: FakeBroker) -> None:
        partition = await served(broker)
        dirs = broker.partitions.dirs
        source, target = dirs.directory_of("t", 0), elsewhere(broker)
        assert source is not None
        await broker.log_moves.begin(partition, target)
        await broker.log_moves.begin(partition, source)
        await broker.log_moves.stop()
        await broker.partitions.close(5)
        again = Partitions(
            broker.loop,
            broker.fs,
            broker.clock,
            broker.rng,
            node_id=NODE,
            cluster_id=CLUSTER,
            log_dirs=DIRECTORIES,
            settings=broker.config.given,
            open_files_max=100,
            producer_expiration_ms=1,
        )
        await again.load(broker.image)
        assert again.dirs.interrupted_moves == {}
        await again.close(6)

    run(story)
