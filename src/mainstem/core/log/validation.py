"""What a leader checks and changes in a batch before it takes it.

In Kafka's order: one whole batch of v2; base offset 0 and `max.message.bytes` (the whole batch, header included; equal
is allowed) before the CRC; then the count against the offsets, no control batch, no negative sequence; then the
records. Uncompressed records are walked once, so that no malformed one is stored. Compressed ones are opened only
where their content decides something: keys on a compacted topic, how old a record may be, a codec to be replaced,
timestamps in the header that cannot be or that the topic does not take. Otherwise the header is believed: it says which
record is the newest, but not which is the oldest.

What changes is the header: LogAppendTime, or a largest timestamp that the records do not have. The batch itself
stays where it lies, unless `compression.type` demands another codec.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mainstem.build_info import is_compiled
from mainstem.core.log.config import LogConfig
from mainstem.core.log.producers import Origin
from mainstem.core.log.rejection import RecordsRejectedError
from mainstem.protocol.batch import HEADER_BYTES, NO_TIMESTAMP, RECORDS_AT, STAMP_BYTES, BatchView
from mainstem.protocol.builder import recompress, rewrite_header
from mainstem.protocol.compression import expansion_bound
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import RecordsSummary, batch_body, iterate_records, walk_records
from mainstem.protocol.varint import subtract_i64

KEEP_CODEC: Final = -1
CODECS: Final = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CODEC_MAX: Final = 4
_ERRORS_MAX: Final = 100
_NO_LIMIT: Final = 0x7FFFFFFFFFFFFFFF
_LONG_AGO: Final = -(1 << 61)
"""The difference between the clock and an earlier timestamp may wrap."""
_BREATH_RECORDS: Final = 512

PRODUCED_BYTES_MAX: Final = 32 << 20
"""What a batch may expand to where it must be opened on its way in."""

_OPENED_AT_ONCE_MAX: Final = 256 << 10
_PACKED_AT_ONCE_MAX: Final = 16 << 10
_WALKED_AT_ONCE_MAX: Final = 4 << 20
RECORDS_AT_ONCE_MAX: Final = 100_000 if is_compiled() else 4_000
"""Some milliseconds: a record takes 10 to 40 ns compiled, and a microsecond interpreted."""


class BatchRules:
    """What a topic's config says about batches, laid out for the data path."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compact",
        "is_log_append_time",
        "judges_age",
        "level",
        "max_bytes",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_bytes: i64 = config.max_message_bytes
        self.compact: bool = config.compact
        self.is_log_append_time: bool = config.is_log_append_time
        self.before_max_ms: i64 = config.message_timestamp_before_max_ms
        self.after_max_ms: i64 = config.message_timestamp_after_max_ms
        self.judges_age: bool = not config.is_log_append_time and config.message_timestamp_before_max_ms < _NO_LIMIT
        """Whether a record may be too old for the topic."""
        self.codec: i64 = CODECS[config.compression_type]
        self.level: int | None = None
        if config.compression_type == "gzip":
            self.level = config.compression_gzip_level
        elif config.compression_type == "lz4":
            self.level = config.compression_lz4_level
        elif config.compression_type == "zstd":
            self.level = config.compression_zstd_level


class ValidBatch:
    """A batch that may be appended: `batch`, with `header` in place of its first 61 bytes where that is not empty."""

    __slots__ = ("batch", "header", "log_append_time", "max_timestamp", "size")

    def __init__(self, batch: BatchView, header: bytes, max_timestamp: i64, log_append_time: i64) -> None:
        self.batch = batch
        self.header = header
        self.size: i64 = batch.size
        self.max_timestamp: i64 = max_timestamp
        self.log_append_time: i64 = log_append_time
        """The leader's time where the topic has it, or -1."""

    def buffers(self, base_offset: i64, leader_epoch: i64) -> list[bytes | memoryview]:
        """The batch as it is written: fresh first 16 bytes, the rest from where it is."""
        batch = self.batch
        stamp = batch.stamp(base_offset, leader_epoch)
        if self.header:
            return [
                stamp + self.header[STAMP_BYTES:],
                memoryview(batch.buffer)[batch.start + HEADER_BYTES : batch.end],
            ]
        return [stamp, memoryview(batch.buffer)[batch.start + STAMP_BYTES : batch.end]]


def takes_long(buffer: bytes, start: i64, end: i64, rules: BatchRules, now_ms: i64) -> bool:
    """Whether `validate` should be left to a thread: it would have to walk, open or pack much. Looks at headers."""
    if end - start < HEADER_BYTES:
        return False
    batch = BatchView(buffer, start)
    codec: i64 = rules.codec
    if batch.size < HEADER_BYTES or start + batch.size > end or batch.size > rules.max_bytes:
        return False
    opened: bool = rules.compact or rules.judges_age or _is_odd(batch, rules, now_ms)
    if batch.codec == 0 and batch.size > _WALKED_AT_ONCE_MAX:
        return True
    # Where the header lies about them, the walk ends with the first that is not there.
    if (batch.codec == 0 or opened) and batch.record_count > RECORDS_AT_ONCE_MAX:
        return True
    if not opened and codec == KEEP_CODEC:
        return False
    repacked: bool = codec != KEEP_CODEC and codec != batch.codec
    if batch.codec == 0:
        return repacked and batch.size > _PACKED_AT_ONCE_MAX
    if not repacked and not opened:
        return False
    if batch.size > _OPENED_AT_ONCE_MAX:
        # Many blocks take their time, though nothing may be in them.
        return True
    bound: i64 = expansion_bound(batch.codec, memoryview(buffer)[start + RECORDS_AT : batch.end])
    return bound > (_PACKED_AT_ONCE_MAX if repacked and codec != 0 else _OPENED_AT_ONCE_MAX)


class LoopShare:
    """How much of what comes together is judged on the event loop, before others have their turn."""

    def __init__(self) -> None:
        self._bytes_left: i64 = _WALKED_AT_ONCE_MAX
        self._records_left: i64 = RECORDS_AT_ONCE_MAX

    @property
    def is_used_up(self) -> bool:
        return self._bytes_left < 0 or self._records_left < 0

    def count(self, buffer: bytes, start: i64, end: i64, rules: BatchRules, now_ms: i64) -> None:
        """A batch is judged on the loop."""
        batch = BatchView(buffer, start)
        self._bytes_left -= end - start
        is_repacked: bool = rules.codec != KEEP_CODEC and rules.codec != batch.codec
        if batch.codec == 0 or rules.compact or rules.judges_age or is_repacked or _is_odd(batch, rules, now_ms):
            self._records_left -= max(batch.record_count, 0)


def validate(
    buffer: bytes,
    start: i64,
    end: i64,
    rules: BatchRules,
    now_ms: i64,
    origin: Origin,
    breathe: Callable[[], None] | None = None,
) -> ValidBatch:
    """Raises RemoteError unless exactly one batch that this topic takes lies in `buffer[start:end]`.

    `breathe` is called now and then where there is much to look at: a thread gives others their turn there.
    """
    batch = _only_batch(buffer, start, end)
    from_client = origin == Origin.CLIENT
    if from_client and batch.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch is {batch.base_offset}; it must be 0")
    size: i64 = batch.size
    if size > rules.max_bytes:
        raise _too_large(size, rules)
    if batch.computed_crc() != batch.crc:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if origin == Origin.RAFT:
        return ValidBatch(batch, b"", batch.max_timestamp, NO_TIMESTAMP)
    # A marker is stored as it is, whatever the topic's codec.
    recompressed: bool = rules.codec != KEEP_CODEC and rules.codec != batch.codec and not batch.is_control
    max_timestamp: i64 = batch.max_timestamp
    if from_client:
        _check_header(batch)
        max_timestamp = _check_records(batch, rules, now_ms, recompressed, breathe)
    if recompressed:
        changed = recompress(batch, rules.codec, rules.level, PRODUCED_BYTES_MAX, breathe)
        batch = BatchView(changed, 0)
        if batch.size > rules.max_bytes:
            raise _too_large(batch.size, rules)
    if rules.is_log_append_time:
        return ValidBatch(batch, rewrite_header(batch, log_append_time=now_ms), now_ms, now_ms)
    if batch.is_log_append_time or max_timestamp != batch.max_timestamp:
        return ValidBatch(batch, rewrite_header(batch, max_timestamp=max_timestamp), max_timestamp, NO_TIMESTAMP)
    return ValidBatch(batch, b"", max_timestamp, NO_TIMESTAMP)


def _only_batch(buffer: bytes, start: i64, end: i64) -> BatchView:
    if end - start < HEADER_BYTES:
        raise _invalid("a produce request must hold one batch for each partition; this one holds none")
    batch = BatchView(buffer, start)
    size: i64 = batch.size
    if size < HEADER_BYTES:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot have {size} bytes")
    if start + size > end:
        raise _invalid(f"a batch of {size} bytes where {end - start} were sent")
    magic: i64 = batch.magic
    if magic != 2:
        code = ErrorCode.INVALID_RECORD if magic < 2 else ErrorCode.CORRUPT_MESSAGE
        raise RemoteError(code, f"record format v{magic}; v2 is the only one supported")
    rest: i64 = end - start - size
    if rest >= HEADER_BYTES and BatchView(buffer, start + size).size <= rest:
        raise _invalid("a produce request must hold exactly one batch for each partition; this one holds more")
    return batch


def _check_header(batch: BatchView) -> None:
    count: i64 = batch.record_count
    by_offsets: i64 = batch.last_offset_delta + 1
    if by_offsets <= 0 or count <= 0 or by_offsets != count:
        raise _invalid(f"the batch counts {count} records and {by_offsets} offsets")
    if batch.codec > _CODEC_MAX:
        # Kafka answers UNKNOWN_SERVER_ERROR; no consumer could read it.
        raise RemoteError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {batch.codec}")
    if batch.is_control:
        raise _invalid("clients may not write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise _invalid(f"sequence {batch.base_sequence} with producer id {batch.producer_id}")


def _check_records(
    batch: BatchView, rules: BatchRules, now_ms: i64, recompressed: bool, breathe: Callable[[], None] | None
) -> i64:
    """Checks what the topic demands of each record; returns the largest timestamp."""
    oldest: i64 = batch.base_timestamp
    newest: i64 = batch.max_timestamp
    has_null_key = False
    if batch.codec == 0 or rules.compact or rules.judges_age or recompressed or _is_odd(batch, rules, now_ms):
        buffer, start, end = batch.buffer, batch.start + RECORDS_AT, batch.end
        if batch.codec != 0:
            buffer, start, end = batch_body(batch, PRODUCED_BYTES_MAX)
        summary: RecordsSummary = walk_records(buffer, start, end, batch.record_count, batch.base_timestamp, breathe)
        has_null_key = summary.has_null_key
        if not batch.is_log_append_time:
            oldest = summary.min_timestamp
            newest = summary.max_timestamp
    suspicious: bool = _claims_append_time(batch, rules)
    if not suspicious and not rules.is_log_append_time:
        # Where differences wrap, what lies between two timestamps that are allowed may not be.
        suspicious = oldest < _LONG_AGO or _is_outside(oldest, rules, now_ms) or _is_outside(newest, rules, now_ms)
    if suspicious or (has_null_key and rules.compact):
        _reject_bad_records(batch, rules, now_ms, breathe)
    # Kafka counts from -1 on, whatever the records say.
    return max(newest, NO_TIMESTAMP)


def _is_odd(batch: BatchView, rules: BatchRules, now_ms: i64) -> bool:
    """Whether the header has timestamps that cannot be, or that the topic does not take: then the records tell.

    One that is too late would keep the log from ever being old, one that is too early have it deleted at once.
    """
    if _claims_append_time(batch, rules):
        return True
    if rules.is_log_append_time:
        return False
    base: i64 = batch.base_timestamp
    newest: i64 = batch.max_timestamp
    return newest < base or _is_outside(base, rules, now_ms) or _is_outside(newest, rules, now_ms)


def _claims_append_time(batch: BatchView, rules: BatchRules) -> bool:
    """Whether a producer says that the broker has given the time, where it may not.

    All records have the time in the header then. Where that is one, and the topic keeps producers' own, it is taken for
    theirs.
    """
    return batch.is_log_append_time and (rules.is_log_append_time or batch.max_timestamp == NO_TIMESTAMP)


def _is_outside(timestamp: i64, rules: BatchRules, now_ms: i64) -> bool:
    """Whether a timestamp is further from the clock than the topic allows. Differences wrap, as they do in Kafka."""
    return subtract_i64(now_ms, timestamp) > rules.before_max_ms or subtract_i64(timestamp, now_ms) > rules.after_max_ms


def _reject_bad_records(batch: BatchView, rules: BatchRules, now_ms: i64, breathe: Callable[[], None] | None) -> None:
    """Looks at each record and raises for those that are not allowed, if there are any."""
    code = ErrorCode.INVALID_RECORD
    errors: list[tuple[int, str]] = []
    for index, record in enumerate(iterate_records(batch)):
        timestamp: i64 = record.timestamp
        if rules.compact and record.key is None:
            errors.append((index, "a compacted topic takes no record without a key"))
        elif not rules.is_log_append_time and timestamp != NO_TIMESTAMP:
            if _is_outside(timestamp, rules, now_ms):
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"timestamp {timestamp} is out of range at {now_ms}"))
        elif batch.is_log_append_time:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, "a producer may not use LogAppendTime"))
        if len(errors) >= _ERRORS_MAX:
            break
        if breathe is not None and index % _BREATH_RECORDS == 0:
            breathe()
    if errors:
        raise RecordsRejectedError(code, f"{errors[0][1]} (record {errors[0][0]} of the batch)", errors)


def replicated_batches(buffer: bytes, start: i64, end: i64, next_offset: i64, leader_epoch: i64) -> list[BatchView]:
    """The batches that a follower may append after `next_offset`, of those that a leader of `leader_epoch` sent.

    A torn one at the end is left out, and so is a batch of a later epoch than the leader's with all that follows it
    (KAFKA-18723). RemoteError for anything that is not sound and next.
    """
    batches: list[BatchView] = []
    position: i64 = start
    while position + HEADER_BYTES <= end:
        batch = BatchView(buffer, position)
        if batch.size >= HEADER_BYTES and position + batch.size > end:
            break
        batch.check(end)
        if batch.base_offset < next_offset or batch.last_offset_delta < 0:
            raise RemoteError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a replicated batch of offsets {batch.base_offset} to {batch.last_offset}; {next_offset} is next",
            )
        if batch.leader_epoch > leader_epoch:
            break
        batches.append(batch)
        next_offset = batch.next_offset
        position = batch.end
    return batches


def _invalid(message: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_RECORD, message)


def _too_large(size: i64, rules: BatchRules) -> RemoteError:
    return RemoteError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; the topic takes {rules.max_bytes}")
