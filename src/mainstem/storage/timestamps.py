"""Finding offsets by timestamp: the time index names a place to start, headers the batch, records the offset."""

from mypy_extensions import i64

from mainstem.protocol.batch import BatchView
from mainstem.protocol.records import iterate_records
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment


class TimestampedOffset:
    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, offset: i64, timestamp: i64, leader_epoch: i64) -> None:
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp
        self.leader_epoch: i64 = leader_epoch


def find_timestamp(
    segments: list[Segment], timestamp: i64, log_start: i64, upper_bound: i64
) -> TimestampedOffset | None:
    """The first record at or after `timestamp`, not before `log_start`, below `upper_bound`."""
    for segment in segments:
        if segment.base_offset >= upper_bound:
            return None
        if segment.max_timestamp >= timestamp:
            found = _search(segment, timestamp, log_start)
            if found is not None:
                return found if found.offset < upper_bound else None
    return None


def _search(segment: Segment, timestamp: i64, log_start: i64) -> TimestampedOffset | None:
    segment.check_indexes()
    time_file = segment.time_index.ref.pin()
    index = segment.offset_index.ref.pin()
    log = segment.log.pin()
    try:
        offset: i64 = max(segment.time_index.lookup(time_file, timestamp, False), log_start)
        scan = HeaderScan(log, segment.offset_index.lookup(index, offset, False), segment.size, False)
        while scan.advance():
            if scan.header.max_timestamp < timestamp or scan.header.last_offset < log_start:
                continue
            batch = BatchView(log.read_at(scan.position, scan.size), 0)
            for record in iterate_records(batch):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return TimestampedOffset(record.offset, record.timestamp, batch.leader_epoch)
    finally:
        segment.log.unpin()
        segment.offset_index.ref.unpin()
        segment.time_index.ref.unpin()
    return None


def find_max_timestamp(segments: list[Segment]) -> TimestampedOffset | None:
    """The first record with the largest timestamp of the log."""
    best: Segment | None = None
    for segment in segments:
        if (
            segment.size > 0
            and segment.max_timestamp >= 0
            and (best is None or segment.max_timestamp > best.max_timestamp)
        ):
            best = segment
    if best is None:
        return None
    largest: i64 = best.max_timestamp
    found = best.locate(best.max_timestamp_offset)
    if found is None:
        return None
    log = best.log.pin()
    try:
        batch = BatchView(log.read_at(found.position, found.size), 0)
    finally:
        best.log.unpin()
    for record in iterate_records(batch):
        if record.timestamp == largest:
            return TimestampedOffset(record.offset, record.timestamp, batch.leader_epoch)
    return None
