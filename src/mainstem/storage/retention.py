"""How many of a log's oldest segments its settings no longer keep.

Whole segments only, from the oldest on, never one with an offset at or past the high watermark (KAFKA-5634), and never
the active one while it is empty.
"""

from mypy_extensions import i64

from mainstem.storage.segment import UNKNOWN_TIMESTAMP, Segment
from mainstem.storage.segments import Segments


def _may_go(segments: Segments, index: i64, high_watermark: i64, log_end: i64) -> bool:
    last: bool = index + 1 == len(segments)
    if last and segments.at(index).size == 0:
        return False
    return high_watermark >= segments.upper_offset(index, log_end)


def count_below(segments: Segments, log_start: i64, high_watermark: i64, log_end: i64) -> i64:
    """Those that end at or before the log start."""
    count: i64 = 0
    while count + 1 < len(segments) and segments.at(count + 1).base_offset <= log_start:
        if not _may_go(segments, count, high_watermark, log_end):
            break
        count += 1
    return count


def count_over(segments: Segments, retention_bytes: i64, high_watermark: i64, log_end: i64) -> i64:
    """Those without which the log still has `retention_bytes`."""
    if retention_bytes < 0:
        return 0
    surplus: i64 = segments.size - retention_bytes
    count: i64 = 0
    while count < len(segments) and _may_go(segments, count, high_watermark, log_end):
        surplus -= segments.at(count).size
        if surplus < 0:
            break
        count += 1
    return count


def untimed_oldest(segments: Segments, oldest_ms: i64, high_watermark: i64, log_end: i64) -> list[Segment]:
    """Those that `count_expired` would have to open to learn how old they are, the oldest first. None where one that
    it comes to before them is not older than `oldest_ms`, and it would not come to them."""
    found: list[Segment] = []
    at: i64 = 0
    while at < len(segments) and _may_go(segments, at, high_watermark, log_end):
        segment = segments.at(at)
        if segment.size > 0 and not segment.is_max_timestamp_known:
            found.append(segment)
        elif not found and segment.size > 0 and segment.largest_timestamp() >= oldest_ms:
            break
        at += 1
    return found


def count_expired(segments: Segments, retention_ms: i64, now_ms: i64, high_watermark: i64, log_end: i64) -> i64:
    """Those whose newest record is older than `retention_ms`, up to the first whose indexes cannot tell.

    One that a cleaning has left empty has no time but that of its file: by that it goes, or with one after it.
    """
    if retention_ms < 0:
        return 0
    count: i64 = 0
    at: i64 = 0
    while at < len(segments) and _may_go(segments, at, high_watermark, log_end):
        segment = segments.at(at)
        if segment.size > 0 and segment.sound_max_timestamp() == UNKNOWN_TIMESTAMP:
            break
        at += 1
        if now_ms - segment.largest_timestamp() > retention_ms:
            count = at
        elif segment.size > 0:
            break
    return count
