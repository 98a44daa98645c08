"""Partitions on their way to another directory, and what else happens to their logs meanwhile."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.log_directory import LogDirectory
from tests.support.logs import NOW_MS, batch

from .fake_broker import FakeBroker, run


def elsewhere(broker: FakeBroker) -> LogDirectory:
    dirs = broker.partitions.dirs
    return next(each for each in dirs.directories if each is not dirs.directory_of("t", 0))


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
        blocked = broker.loop.run_in_executor(None, held.wait, 10)
        target = elsewhere(broker)
        broker.log_moves.begin(partition, target)
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
        broker.log_moves.begin(partition, target)
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is source
        whole.write_at(segment.size - 1, [last])
        broker.log_moves.begin(partition, target)
        await moved(broker)
        assert broker.partitions.dirs.directory_of("t", 0) is target

    run(story)


@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"])
def test_a_partition_moves_though_batches_come_all_the_time(flush_messages: str) -> None:
    """There is never a moment when the copy has everything, nor one without a flush under way."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t", flush_messages=flush_messages)
        partition = broker.produce("t", 0, batch(b"first"))
        target = elsewhere(broker)
        broker.log_moves.begin(partition, target)
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

    run(story)


def test_a_partition_moves_only_when_the_metadata_names_one_of_the_two_directories() -> None:
    """Or a crash between the renames would leave two folders, and nobody who could tell which of them to keep."""

    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda request: RemoteError(ErrorCode.REQUEST_TIMED_OUT)
        topic_id = await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"value"))
        source, target = broker.partitions.dirs.directory_of("t", 0), elsewhere(broker)
        assert source is not None
        broker.log_moves.begin(partition, target)
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
