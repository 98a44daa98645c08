"""What a node does by itself while it serves: compaction and retention."""

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from mainstem.broker import housekeeping
from mainstem.broker.app import Broker
from mainstem.broker.drivers.quorum import FOLDER
from mainstem.core.log.producers import Producer
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.messages.k00_produce import ProduceResponse
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.protocol.records import Record, iterate_records
from mainstem.sim.disk import SimDisk
from mainstem.storage.checkpoint import write_file_durably
from tests.support.raw import Peer, connect, produce_request, run_with_node, start_node

RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
TORN = "/data/torn-0/00000000000000000000.log"
TEMPORARY = shutil.ignore_patterns("*.tmp")
"""Files that a running node replaces others by: they may be gone before they are copied."""


async def create_topic(peer: Peer, name: str, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                ],
            )
        ]
    )
    answer = await peer.ask(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


async def write(peer: Peer, topic: str, key: bytes, value: bytes | None, at_ms: int) -> None:
    builder = BatchBuilder()
    builder.append(at_ms, key, value)
    answer = await peer.ask(produce_request(topic, builder.build()), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


async def read_all(peer: Peer, topic: str, offset: int = 0) -> list[Record]:
    """Everything up to the high watermark; one answer holds what one segment has."""
    records: list[Record] = []
    while True:
        found = await peer.fetch(topic, offset)
        assert found.error_code == 0
        data = found.records or b""
        for batch in iterate_batches(data, 0, len(data)):
            records += [record for record in iterate_records(batch) if record.offset >= offset]
            offset = batch.next_offset
        if not data or offset >= found.high_watermark:
            return records


async def fill_until_compacted(node: Broker, peer: Peer, topic: str) -> dict[bytes | None, bytes]:
    """Writes a few keys over and over and waits until most of that is gone; the newest value of each key."""
    newest: dict[bytes | None, bytes] = {}
    began_ms = node.clock.wall_ms()
    for count in range(200):
        key, value = b"%d" % (count % 5), b"%d" % count
        # Ten records end a segment by these times, however quickly they are written.
        await write(peer, topic, key, value, began_ms + count // 10 * 10)
        newest[key] = value
    deadline = asyncio.get_running_loop().time() + 15
    while len(await read_all(peer, topic, node.partitions.find(topic, 0).log.log_start)) > 60:
        assert asyncio.get_running_loop().time() < deadline, "nothing was compacted"
        await asyncio.sleep(0.05)
    return newest


def test_a_compacted_topic_keeps_the_newest_value_of_each_key_while_it_is_written(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1")
        newest = await fill_until_compacted(node, peer, "table")
        records = await read_all(peer, "table", node.partitions.find("table", 0).log.log_start)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert {record.key: record.value for record in records} == newest

    run_with_node(tmp_path, scenario, log_cleaner_backoff_ms="20")


def test_old_segments_go_and_the_log_start_follows(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "recent", retention_ms="3600000", segment_ms="1")
        long_ago = node.clock.wall_ms() - 7_200_000
        for count in range(10):
            await write(peer, "recent", b"k", b"old %d" % count, long_ago + count)
        await write(peer, "recent", b"k", b"new", node.clock.wall_ms())
        deadline = asyncio.get_running_loop().time() + 15
        while node.partitions.find("recent", 0).log.log_start < 10:
            assert asyncio.get_running_loop().time() < deadline, "nothing was deleted"
            await asyncio.sleep(0.02)
        assert [record.value for record in await read_all(peer, "recent", 10)] == [b"new"]

    run_with_node(tmp_path, scenario, log_retention_check_interval_ms="20")


def test_what_was_deleted_goes_from_the_disk_when_its_time_has_come_however_seldom_retention_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_REMOVALS_MS", 20)

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "kept", retention_ms="3600000", segment_ms="1", file_delete_delay_ms="0")
        await create_topic(peer, "gone")
        for age_ms in (7_200_000, 7_100_000, 0):
            await write(peer, "kept", b"k", b"v", node.clock.wall_ms() - age_ms)
        assert await node.partitions.find("kept", 0).retire_segments() == 2
        gone = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5000)
        assert (await peer.ask(gone, 5, DeleteTopicsResponse)).responses[0].error_code == 0
        deadline = asyncio.get_running_loop().time() + 15
        while any(tmp_path.glob("kept-0/*.deleted")) or any(tmp_path.glob("gone-0.*")):
            assert asyncio.get_running_loop().time() < deadline, "it is still there"
            await asyncio.sleep(0.02)
        assert len(list(tmp_path.glob("kept-0/*.log"))) == 1

    run_with_node(tmp_path, scenario, log_segment_delete_delay_ms="0", log_retention_check_interval_ms="3600000")


def test_what_retention_took_of_the_metadata_goes_from_the_disk_though_no_snapshot_follows(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        for number in range(2):
            await create_topic(peer, f"topic-{number}")
            await node._quorum.snapshot()
        folder = tmp_path / FOLDER
        assert len(list(folder.glob("*.log"))) == 1
        assert any(folder.glob("*.deleted"))
        deadline = asyncio.get_running_loop().time() + 15
        while any(folder.glob("*.deleted")):
            assert asyncio.get_running_loop().time() < deadline, "it is still there"
            await asyncio.sleep(0.02)

    run_with_node(
        tmp_path,
        scenario,
        log_retention_check_interval_ms="20",
        metadata_max_retention_bytes="1",
        metadata_max_idle_interval_ms="0",
        internal_metadata_delete_delay_millis="300",
    )


def test_what_a_killed_kafka_had_compacted_is_there_after_every_start(tmp_path: Path) -> None:
    """The first recovery can tell that Kafka left the gaps, and takes away what it tells that by."""

    async def scenario(node: Broker, peer: Peer) -> None:
        # Segments that are too full to become one: gaps lie between them.
        await create_topic(
            peer, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", internal_segment_bytes="400"
        )
        newest = await fill_until_compacted(node, peer, "table")
        await node.compaction.stop()
        home = tmp_path / "killed-0"
        shutil.copytree(tmp_path / "live", home, ignore=TEMPORARY)
        (home / "recovery-point-offset-checkpoint").write_text("0\n1\ntable 0 0\n")
        (home / "cleaner-offset-checkpoint").unlink()
        with open(max((home / "table-0").glob("*.index")), "r+b") as index:
            index.truncate(10 << 20)
        for turn in range(2):
            again = await start_node(tmp_path / f"killed-{turn}", log_cleaner_enable="false")
            reader = await connect(again)
            records = await read_all(reader, "table")
            assert {record.key: record.value for record in records} == newest, f"after restart {turn}"
            reader.close()
            shutil.copytree(tmp_path / f"killed-{turn}", tmp_path / f"killed-{turn + 1}", ignore=TEMPORARY)
            await again.stop()

    run_with_node(tmp_path / "live", scenario, log_cleaner_backoff_ms="20")


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("gone", ["the file", "an entry"])
def test_what_was_compacted_is_there_after_every_start_though_its_recovery_point_was_removed(
    gone: str, policy: str
) -> None:
    """As where the file made no sense and was removed, or a partition's folder was brought from elsewhere."""
    disk = SimDisk(Random(1))

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(
            peer, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", internal_segment_bytes="400"
        )
        newest = await fill_until_compacted(node, peer, "table")
        await node.compaction.stop()
        await set_topic(peer, "table", "cleanup.policy", policy)
        killed = disk.fork()
        killed.remove("/data/cleaner-offset-checkpoint")
        if gone == "the file":
            killed.remove(RECOVERY_POINTS)
        else:
            write_file_durably(killed, RECOVERY_POINTS, b"0\n0\n")
        for turn in range(3):
            killed.kill()
            again = await start_node("/data", killed, log_cleaner_enable="false")
            reader = await connect(again)
            records = await read_all(reader, "table")
            assert {record.key: record.value for record in records} == newest, f"after restart {turn}"
            reader.close()
            killed = killed.fork()
            await again.stop()

    run_with_node("/data", scenario, disk, log_cleaner_backoff_ms="20")


def test_a_start_says_what_it_has_cut_off_a_log_and_nothing_where_it_has_not(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk(Random(1))

    def said(lines: list[logging.LogRecord]) -> list[tuple[object, ...]]:
        return [
            tuple(vars(line)[name] for name in ("partition", "offset", "bytes", "segments", "reason"))
            for line in lines
            if line.levelno == logging.WARNING and "cut" in line.getMessage()
        ]

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "torn")
        await create_topic(peer, "whole")
        for topic in ("torn", "whole"):
            for count in range(3):
                await write(peer, topic, b"k", b"%d" % count, node.clock.wall_ms())
        killed = disk.fork()
        killed.kill()
        size = killed.file_size(TORN)
        killed.cut_file(TORN, size - 1)
        for turn in range(2):
            caplog.clear()
            again = await start_node("/data", killed)
            why = f"a batch of {size // 3} bytes where {size // 3 - 1} are left"
            assert said(caplog.records) == ([("torn-0", 2, size // 3 - 1, 0, why)] if turn == 0 else [])
            killed = killed.fork()
            killed.kill()
            await again.stop()

    run_with_node("/data", scenario, disk)


async def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 15
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)


def test_what_flush_ms_asks_for_is_made_durable_with_nobody_writing(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "soon", flush_ms="50")
        await create_topic(peer, "never", flush_ms="3600000")
        for topic in ("soon", "never"):
            await write(peer, topic, b"k", b"v", node.clock.wall_ms())
        soon = node.partitions.find("soon", 0).log
        await until("it is not flushed", lambda: soon.recovery_point == soon.log_end == 1)
        assert node.partitions.find("never", 0).log.recovery_point == 0

    run_with_node(tmp_path, scenario, log_flush_scheduler_interval_ms="20")


def test_checkpoint_files_say_what_the_logs_say_once_their_interval_is_over(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "t", flush_messages="1")
        for count in range(3):
            await write(peer, "t", b"k", b"%d" % count, node.clock.wall_ms())
        delete = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])],
            timeout_ms=5000,
        )
        answer = await peer.ask(delete, 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].low_watermark == 2

        def says(name: str, offset: int) -> bool:
            path = tmp_path / name
            return path.exists() and f"\nt 0 {offset}\n" in path.read_text()

        await until("the recovery point is not written", lambda: says("recovery-point-offset-checkpoint", 3))
        await until("the log start is not written", lambda: says("log-start-offset-checkpoint", 2))
        await until("the high watermark is not written", lambda: says("replication-offset-checkpoint", 3))

    run_with_node(
        tmp_path,
        scenario,
        log_flush_offset_checkpoint_interval_ms="20",
        log_flush_start_offset_checkpoint_interval_ms="20",
        replica_high_watermark_checkpoint_interval_ms="20",
    )


def test_a_kill_right_after_a_compaction_loses_nothing(tmp_path: Path) -> None:
    """The gaps that compaction leaves must not look like a lost tail to the recovery after it."""

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1")
        newest = await fill_until_compacted(node, peer, "table")
        # What a killed process leaves behind is what the page cache holds now.
        await node.compaction.stop()
        shutil.copytree(tmp_path / "live", tmp_path / "killed", ignore=TEMPORARY)
        for turn in range(2):
            again = await start_node(tmp_path / "killed", log_cleaner_enable="false")
            reader = await connect(again)
            records = await read_all(reader, "table")
            assert {record.key: record.value for record in records} == newest, f"after restart {turn}"
            reader.close()
            await again.stop()

    run_with_node(tmp_path / "live", scenario, log_cleaner_backoff_ms="20")


async def set_topic(peer: Peer, topic: str, setting: str, value: str) -> None:
    change = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await peer.ask(request, 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


def test_a_topics_settings_are_in_force_once_they_are_changed_and_go_with_the_topic(tmp_path: Path) -> None:
    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "t", message_timestamp_type="CreateTime")
        assert (await peer.produce("t", b"a")).log_append_time_ms == -1
        await set_topic(peer, "t", "message.timestamp.type", "LogAppendTime")
        assert (await peer.produce("t", b"b")).log_append_time_ms > 0
        gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        assert (await peer.ask(gone, 5, DeleteTopicsResponse)).responses[0].error_code == 0
        await create_topic(peer, "t")
        assert (await peer.produce("t", b"c")).log_append_time_ms == -1

    run_with_node(tmp_path, scenario)


def test_after_an_unclean_stop_no_roll_makes_the_loop_wait_for_the_disk() -> None:
    """What a recovery wrote anew beside durable batches must be durable before a new segment hides it from the next."""

    async def run() -> None:
        disk = SimDisk(Random(1))
        node = await start_node("/data", disk)
        peer = await connect(node)
        await create_topic(peer, "orders", segment_ms="1")
        now_ms = node.clock.wall_ms()
        await write(peer, "orders", b"k", b"v", now_ms - 1000)
        peer.close()
        await node.stop()
        idle = await start_node("/data", disk)
        killed = disk.fork()
        killed.kill()
        await idle.stop()
        node = await start_node("/data", killed)
        peer = await connect(node)
        log = node.partitions.find("orders", 0).log
        assert log.recovery_point == log.log_end == 1
        deadline = asyncio.get_running_loop().time() + 15
        while any(ref.dirty for ref in log.active_segment.refs()):
            assert asyncio.get_running_loop().time() < deadline, "the indexes are left to the roll"
            await asyncio.sleep(0.01)
        on_loop: list[str] = []

        def note(operation: str, path: str, position: int, size: int) -> None:
            if "sync" in operation and "orders-0" in path and threading.current_thread() is threading.main_thread():
                on_loop.append(path)

        killed.on_operation = note
        await write(peer, "orders", b"k", b"v", now_ms)
        assert (len(log.segments), on_loop) == (2, [])
        killed.on_operation = None
        peer.close()
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_others_are_served_while_very_many_producers_are_forgotten(tmp_path: Path) -> None:
    silent = 20_000

    async def scenario(node: Broker, peer: Peer) -> None:
        await create_topic(peer, "busy")
        states = node.partitions.find("busy", 0).log.producers.states
        for producer_id in range(silent):
            states.restore(Producer(producer_id))
        turns = 0
        is_over = asyncio.Event()

        async def count_turns() -> None:
            nonlocal turns
            while not is_over.is_set():
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        turns = 0
        await node.housekeeping._expire_producers()
        assert turns >= silent // housekeeping._PRODUCERS_AT_ONCE - 1
        assert states.ids() == []
        is_over.set()
        await counting

    run_with_node(tmp_path, scenario)
