"""P12: what is due to go goes, or disks fill up: `what_goes_is_due` says that nothing else does.

When all is healed and clients are done, within seconds
- no log has a segment that `retention.ms`, `retention.bytes` or its own start says should be gone,
- the files of what went are gone, and the folders of topics that were deleted,
- where there is a `max.compaction.lag.ms`, no record is left that is older than it and has a newer one of its key that
  is older as well.
Judged by the batches as they are on the disk, past the broker.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mainstem.broker.partition import Partition
from mainstem.core.log.config import LONG_MAX
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.records import iterate_records
from mainstem.sim.ledger import Violation
from mainstem.storage.segment import Segment

if TYPE_CHECKING:
    from mainstem.sim.world import World

_LOOKS: Final = 40
_PAUSE_S: Final = 0.5


async def wait_until_gone(world: "World") -> None:
    waited_for: list[str] | None = None
    for _ in range(_LOOKS):
        due = list(_overdue(world))
        removed = [path for part in (".deleted", "-delete/") for path in world.disk.files(part)]
        # What went since somebody looked first has its own time.
        waited_for = removed if waited_for is None else [path for path in waited_for if path in removed]
        due += [path for path in waited_for if not _may_stay(world, path)]
        if not due:
            world.count("what was due is gone")
            return
        await asyncio.sleep(_PAUSE_S)
    raise Violation("P12 what is due goes", f"still there: {', '.join(due)}")


def _may_stay(world: "World", path: str) -> bool:
    """Of a log that is damaged, or in a folder that was set aside: nobody touches what is in there."""
    return "-stray/" in path or any(f"/{topic}-{index}" in path for topic, index in world.ledger.damaged)


def _overdue(world: "World") -> Iterator[str]:
    broker = world.process.broker
    if broker is None:
        return
    now_ms = world.process.clock.wall_ms()
    for partition in broker.partitions:
        log = partition.log
        if (partition.topic, partition.index) in world.ledger.damaged or log.failure is not None:
            continue
        config, segments = log.config, log.segments
        is_mistimed = (partition.topic, partition.index) in world.ledger.mistimed
        if len(segments) > 1 and segments[1].base_offset <= log.log_start:
            yield f"{partition} before its start, {log.log_start}"
        if config.delete:
            rest = sum(segment.size for segment in segments[1:])
            if config.retention_bytes >= 0 and len(segments) > 1 and rest >= config.retention_bytes:
                yield f"{partition} at {segments[0].base_offset}, with {rest} bytes behind it"
            if config.retention_ms >= 0 and segments[0].size and not is_mistimed:
                newest_ms = max(batch.max_timestamp for batch in _batches(world, segments[0]))
                if now_ms - newest_ms > config.retention_ms:
                    yield f"{partition} at {segments[0].base_offset}, {now_ms - newest_ms} ms old"
        if config.compact and not is_mistimed and config.max_compaction_lag_ms != LONG_MAX:
            yield from _superseded(world, partition, now_ms)


def _superseded(world: "World", partition: Partition, now_ms: int) -> Iterator[str]:
    log = partition.log
    lag_ms = max(log.config.max_compaction_lag_ms, log.config.min_compaction_lag_ms)
    newest: dict[bytes, int] = {}
    older: list[tuple[bytes, int]] = []
    for segment in log.segments[:-1]:
        batches = _batches(world, segment)
        if any(batch.max_timestamp > now_ms - lag_ms for batch in batches):
            return  # too young, and so is all that comes after it
        if any(batch.is_transactional for batch in batches) or segment.base_offset >= log.recovery_point:
            return
        for batch in batches:
            for record in iterate_records(batch):
                if record.key is not None:
                    if record.key in newest:
                        older.append((record.key, newest[record.key]))
                    newest[record.key] = record.offset
    if older:
        yield f"{partition}: {older[0][0]!r} at {older[0][1]}, which is at {newest[older[0][0]]} again"


def _batches(world: "World", segment: Segment) -> list[BatchView]:
    data = world.disk.peek(segment.log.path)[: segment.size]
    return list(iterate_batches(data, 0, len(data)))
