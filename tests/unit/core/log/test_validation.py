"""What a leader takes from producers; each verdict is the one Kafka 4.3.1 gave for the same bytes."""

import struct

import pytest
from crc32c import crc32c

from mainstem.build_info import is_compiled
from mainstem.core.log.config import parse_log_config
from mainstem.core.log.producers import Origin
from mainstem.core.log.rejection import RecordsRejectedError
from mainstem.core.log.validation import (
    RECORDS_AT_ONCE_MAX,
    BatchRules,
    LoopShare,
    ValidBatch,
    replicated_batches,
    takes_long,
    validate,
)
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder, encode_header, rewrite_header
from mainstem.protocol.compression import compress
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import iterate_records
from tests.support.logs import NOW_MS, batch, marker

HOUR_MS = 3_600_000


def edited(data: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one header field changed and the CRC made right again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def judge(data: bytes, origin: Origin = Origin.CLIENT, **settings: str) -> ValidBatch:
    rules = BatchRules(parse_log_config({name.replace("_", "."): text for name, text in settings.items()}))
    return validate(data, 0, len(data), rules, NOW_MS, origin)


def verdict(data: bytes, **settings: str) -> ErrorCode:
    try:
        judge(data, Origin.CLIENT, **settings)
    except RemoteError as error:
        return error.code
    return ErrorCode.NONE


def written(valid: ValidBatch, base_offset: int = 40, leader_epoch: int = 3) -> BatchView:
    data = b"".join(bytes(part) for part in valid.buffers(base_offset, leader_epoch))
    assert len(data) == valid.size
    found = BatchView(data, 0)
    found.check(len(data))
    assert (found.base_offset, found.leader_epoch) == (base_offset, leader_epoch)
    return found


def timed(*timestamps: int, codec: int = 0) -> bytes:
    """A batch with a record at each of these times."""
    builder = BatchBuilder(codec=codec)
    for timestamp in timestamps:
        builder.append(timestamp, b"k", b"v")
    return builder.build()


ONE = batch(b"a")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (ONE, ErrorCode.NONE),
        (b"", ErrorCode.INVALID_RECORD),
        (ONE[:-1], ErrorCode.INVALID_RECORD),
        (ONE[:40], ErrorCode.INVALID_RECORD),
        (ONE + ONE, ErrorCode.INVALID_RECORD),
        (ONE + b"tail", ErrorCode.NONE),
        (ONE + ONE[:-1], ErrorCode.NONE),
        (ONE[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (edited(ONE, 8, ">i", 5), ErrorCode.CORRUPT_MESSAGE),
        (edited(ONE, 8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
        (edited(ONE, 0, ">q", 5), ErrorCode.INVALID_RECORD),
        (edited(ONE, 16, ">b", 1), ErrorCode.INVALID_RECORD),
        (edited(ONE, 16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (edited(ONE, 57, ">i", 2), ErrorCode.INVALID_RECORD),
        (edited(ONE, 57, ">i", 0), ErrorCode.INVALID_RECORD),
        (edited(ONE, 23, ">i", 7), ErrorCode.INVALID_RECORD),
        (edited(ONE, 23, ">i", -1), ErrorCode.INVALID_RECORD),
        (edited(ONE, 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (marker(1, 0, True), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=5, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(b"a", timestamp=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a", timestamp=NOW_MS + HOUR_MS), ErrorCode.NONE),
        (batch(b"a", timestamp=NOW_MS + HOUR_MS + 1, codec=1), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a", timestamp=-1), ErrorCode.NONE),
        (batch(b"a", timestamp=0), ErrorCode.NONE),
    ],
)
def test_a_plain_topic_judges_as_kafka_does(data: bytes, code: ErrorCode) -> None:
    assert verdict(data) is code


def test_the_largest_batch_is_exactly_max_message_bytes() -> None:
    assert verdict(ONE, max_message_bytes=str(len(ONE))) is ErrorCode.NONE
    assert verdict(ONE, max_message_bytes=str(len(ONE) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    # The size is judged before the CRC.
    assert verdict(ONE[:-1] + b"?", max_message_bytes=str(len(ONE) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_refuses_the_records_without_a_key_by_their_place() -> None:
    builder = BatchBuilder()
    for key in (b"k", None, b"k", None):
        builder.append(NOW_MS, key, b"v")
    with pytest.raises(RecordsRejectedError) as raised:
        judge(builder.build(), cleanup_policy="compact")
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in raised.value.record_errors] == [1, 3]
    assert verdict(batch(b"v", key=None, codec=1), cleanup_policy="compact") is ErrorCode.INVALID_RECORD
    assert verdict(batch(b"v", key=None)) is ErrorCode.NONE


def test_timestamps_that_are_too_old_are_refused_where_the_topic_says_so() -> None:
    old = batch(b"a", b"b", timestamp=NOW_MS - 1001)
    with pytest.raises(RecordsRejectedError) as raised:
        judge(old, message_timestamp_before_max_ms="1000")
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in raised.value.record_errors] == [0]
    assert verdict(batch(b"a", timestamp=-1), message_timestamp_before_max_ms="1000") is ErrorCode.NONE


@pytest.mark.parametrize("codec", range(5))
def test_a_record_that_is_too_old_is_found_in_the_middle_of_a_compressed_batch(codec: int) -> None:
    builder = BatchBuilder(codec=codec)
    for timestamp in (NOW_MS, NOW_MS - 1001, NOW_MS):
        builder.append(timestamp, b"k", b"v")
    data = builder.build()
    with pytest.raises(RecordsRejectedError) as raised:
        judge(data, message_timestamp_before_max_ms="1000")
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in raised.value.record_errors] == [1]
    assert verdict(data, message_timestamp_before_max_ms="1001") is ErrorCode.NONE
    assert verdict(data, message_timestamp_before_max_ms="1000", message_timestamp_type="LogAppendTime") is (
        ErrorCode.NONE
    )


FURTHEST = str((1 << 63) - 1)


@pytest.mark.parametrize("codec", range(5))
def test_a_timestamp_is_judged_by_the_clock_however_far_it_is_from_the_first_of_its_batch(codec: int) -> None:
    """The difference between two timestamps may need 65 bits, and its sign turns."""
    far = timed((1 << 63) - 1, -2, 5, codec=codec)
    assert verdict(far) is ErrorCode.INVALID_TIMESTAMP
    assert verdict(timed(5, -2, (1 << 63) - 1, codec=codec)) is ErrorCode.INVALID_TIMESTAMP
    assert written(judge(far, message_timestamp_after_max_ms=FURTHEST)).max_timestamp == (1 << 63) - 1
    wide = timed(1 << 62, -(1 << 62) - 1)
    assert written(judge(wide, message_timestamp_after_max_ms=FURTHEST)).max_timestamp == 1 << 62


def test_a_record_that_is_too_old_is_found_between_those_whose_age_wraps() -> None:
    limits = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": FURTHEST}
    assert verdict(timed(NOW_MS, -(1 << 63)), **limits) is ErrorCode.NONE
    assert verdict(timed(NOW_MS, NOW_MS - 1001, -(1 << 63)), **limits) is ErrorCode.INVALID_TIMESTAMP


def test_a_large_compressed_batch_is_judged_in_a_thread_where_its_age_counts() -> None:
    data = batch(bytes(1 << 20), codec=4)
    limited = BatchRules(parse_log_config({"message.timestamp.before.max.ms": "1000"}))
    assert takes_long(data, 0, len(data), limited, NOW_MS)
    assert not takes_long(data, 0, len(data), BatchRules(parse_log_config({})), NOW_MS)


@pytest.mark.parametrize("codec", [3, 4])
def test_a_large_compressed_batch_is_judged_in_a_thread_though_it_expands_to_nothing(codec: int) -> None:
    body = compress(codec, b"") * (1 << 16)
    data = encode_header(body, 0, -1, codec, 0, NOW_MS, NOW_MS, -1, -1, -1, 1) + body
    assert takes_long(data, 0, len(data), BatchRules(parse_log_config({"cleanup.policy": "compact"})), NOW_MS)
    assert not takes_long(data, 0, len(data), BatchRules(parse_log_config({})), NOW_MS)


@pytest.mark.parametrize("codec", range(5))
def test_a_largest_timestamp_below_minus_one_is_kept_as_minus_one(codec: int) -> None:
    found = written(judge(batch(b"a", timestamp=-5, codec=codec)))
    assert (found.base_timestamp, found.max_timestamp) == (-5, -1)


def test_log_append_time_is_stamped_into_the_header_alone() -> None:
    valid = judge(batch(b"a", b"b", timestamp=5), message_timestamp_type="LogAppendTime")
    assert valid.log_append_time == NOW_MS
    found = written(valid)
    assert found.is_log_append_time
    assert (found.max_timestamp, found.base_timestamp) == (NOW_MS, 5)
    assert [record.timestamp for record in iterate_records(found)] == [NOW_MS, NOW_MS]


def test_a_producer_may_not_claim_log_append_time() -> None:
    claimed = rewrite_header(BatchView(ONE, 0), log_append_time=NOW_MS) + ONE[61:]
    assert verdict(claimed, message_timestamp_type="LogAppendTime") is ErrorCode.INVALID_TIMESTAMP
    # On a CreateTime topic Kafka takes it and makes it a CreateTime batch.
    assert not written(judge(claimed)).is_log_append_time


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("times_ms", [(-1, -1), (NOW_MS, NOW_MS)])
def test_who_claims_log_append_time_must_say_which(codec: int, policy: str, times_ms: tuple[int, int]) -> None:
    sent = timed(*times_ms, codec=codec)
    claimed = rewrite_header(BatchView(sent, 0), log_append_time=-1) + sent[61:]
    with pytest.raises(RecordsRejectedError) as raised:
        judge(claimed, cleanup_policy=policy)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in raised.value.record_errors] == [0, 1]


def test_a_claimed_log_append_time_is_judged_in_place_of_those_of_the_records() -> None:
    sent = timed(-1, NOW_MS - 2 * HOUR_MS)
    for claimed_ms, code in ((NOW_MS, ErrorCode.NONE), (NOW_MS - 2 * HOUR_MS, ErrorCode.INVALID_TIMESTAMP)):
        claimed = rewrite_header(BatchView(sent, 0), log_append_time=claimed_ms) + sent[61:]
        assert verdict(claimed, message_timestamp_before_max_ms=str(HOUR_MS)) is code


def test_a_largest_timestamp_that_no_record_has_is_corrected() -> None:
    assert written(judge(edited(ONE, 35, ">q", NOW_MS + 5))).max_timestamp == NOW_MS


@pytest.mark.parametrize("claimed_ms", [0, -1, NOW_MS - 1, NOW_MS + HOUR_MS + 1, 1 << 62])
@pytest.mark.parametrize("codec", range(5))
def test_a_largest_timestamp_that_cannot_be_or_is_not_allowed_is_corrected_in_a_compressed_batch_too(
    codec: int, claimed_ms: int
) -> None:
    """Retention goes by it: one in the far future keeps a log for ever, one long ago has it deleted at once."""
    sent = edited(batch(b"a", b"b", codec=codec), 35, ">q", claimed_ms)
    found = written(judge(sent))
    assert (found.base_timestamp, found.max_timestamp) == (NOW_MS, NOW_MS + 1)


def test_a_large_compressed_batch_whose_header_is_odd_is_judged_in_a_thread() -> None:
    data = batch(bytes(1 << 20), codec=4)
    rules = BatchRules(parse_log_config({}))
    for claimed_ms in (0, 1 << 62):
        assert takes_long(edited(data, 35, ">q", claimed_ms), 0, len(data), rules, NOW_MS)
    stamped = BatchRules(parse_log_config({"message.timestamp.type": "LogAppendTime"}))
    assert takes_long(edited(data, 21, ">h", 4 | 8), 0, len(data), stamped, NOW_MS)


def test_nothing_is_copied_or_rewritten_where_nothing_changes() -> None:
    frame = b"header" + ONE
    rules = BatchRules(parse_log_config({}))
    valid = validate(frame, 6, len(frame), rules, NOW_MS, Origin.CLIENT)
    assert valid.header == b""
    rest = valid.buffers(0, 0)[1]
    assert isinstance(rest, memoryview)
    assert rest.obj is frame


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(("name", "number"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_topic_with_a_codec_of_its_own_stores_that(codec: int, name: str, number: int) -> None:
    sent = batch(b"a" * 200, b"b", codec=codec)
    found = written(judge(sent, compression_type=name))
    assert found.codec == number
    assert [record.value for record in iterate_records(found)] == [b"a" * 200, b"b"]
    assert written(judge(sent, compression_type="producer")).codec == codec


def test_what_does_not_fit_once_it_is_recompressed_is_too_large() -> None:
    sent = batch(b"a" * 2000, codec=1)
    settings = {"compression_type": "uncompressed", "max_message_bytes": "1000"}
    assert verdict(sent, **settings) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_malformed_record_is_not_stored() -> None:
    broken = bytearray(ONE)
    broken[-2:] = b"\xff\xff"
    struct.pack_into(">I", broken, 17, crc32c(bytes(broken[21:])))
    assert verdict(bytes(broken)) is ErrorCode.INVALID_RECORD


def test_a_coordinators_marker_is_stamped_but_never_compressed() -> None:
    valid = judge(
        marker(1, 0, True), Origin.COORDINATOR, compression_type="gzip", message_timestamp_type="LogAppendTime"
    )
    found = written(valid)
    assert found.is_control
    assert found.is_log_append_time
    assert found.codec == 0


def test_a_follower_takes_whole_batches_in_order() -> None:
    first = batch(b"a", base_offset=5, leader_epoch=1)
    second = batch(b"b", base_offset=9, leader_epoch=2)
    sent = first + second + first[:30]
    assert [found.base_offset for found in replicated_batches(sent, 0, len(sent), 5, 2)] == [5, 9]
    with pytest.raises(RemoteError):
        replicated_batches(sent, 0, len(sent), 6, 2)
    bad = first[:-1] + b"?"
    with pytest.raises(RemoteError):
        replicated_batches(bad, 0, len(bad), 5, 2)


def packed(codec: int, size: int, count: int = 1) -> bytes:
    builder = BatchBuilder(codec=codec)
    for _ in range(count):
        builder.append(NOW_MS, b"k", bytes(size))
    return builder.build()


@pytest.mark.parametrize(
    ("data", "settings", "expected"),
    [
        # What is neither opened nor packed anew is judged at once, whatever its size.
        (packed(4, 900_000), {}, False),
        (packed(0, 900_000), {"cleanup_policy": "compact"}, False),
        (packed(4, 900_000), {"compression_type": "zstd"}, False),
        (packed(0, 900_000), {"compression_type": "zstd"}, True),
        (packed(0, 100), {"compression_type": "zstd"}, False),
        (packed(4, 100), {"cleanup_policy": "compact"}, False),
        # Few bytes, but they expand to many.
        (packed(1, 900_000), {"cleanup_policy": "compact"}, True),
        (packed(2, 900_000), {"cleanup_policy": "compact"}, True),
        (packed(3, 900_000), {"cleanup_policy": "compact"}, True),
        (packed(4, 900_000), {"cleanup_policy": "compact"}, True),
        (packed(4, 900_000), {"compression_type": "uncompressed"}, True),
        # What is refused at once anyway.
        (packed(0, 900_000)[:40], {"compression_type": "zstd"}, False),
        (packed(0, 900_000), {"compression_type": "zstd", "max_message_bytes": "1000"}, False),
    ],
)
def test_a_thread_judges_what_takes_long(data: bytes, settings: dict[str, str], expected: bool) -> None:
    rules = BatchRules(parse_log_config({name.replace("_", "."): text for name, text in settings.items()}))
    assert takes_long(data, 0, len(data), rules, NOW_MS) is expected


def test_records_behind_the_first_lz4_frame_do_not_count_as_no_java_consumer_finds_them() -> None:
    plain = packed(0, 10, 10)[61:]
    half = len(plain) // 2
    frames = compress(3, plain[:half]) + compress(3, plain[half:])
    for body, code in ((frames, ErrorCode.INVALID_RECORD), (compress(3, plain) + b"junk", ErrorCode.NONE)):
        data = encode_header(body, 0, -1, 3, 9, NOW_MS, NOW_MS, -1, -1, -1, 10) + body
        assert verdict(data, cleanup_policy="compact") is code


def test_a_thread_walks_what_is_large_though_nothing_is_to_be_opened() -> None:
    """A topic may take batches of hundreds of megabytes, of which every record is looked at."""
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", bytes(5 << 20))
    data = builder.build()
    large = BatchRules(parse_log_config({"max.message.bytes": str(100 << 20)}))
    assert takes_long(data, 0, len(data), large, NOW_MS)
    assert not takes_long(data, 0, len(data) - 1, large, NOW_MS), "what is not whole is refused at once"
    assert not takes_long(data, 0, len(data), BatchRules(parse_log_config({})), NOW_MS), "and so is what is too large"


def test_a_thread_walks_what_has_many_records_though_they_are_few_bytes() -> None:
    """An empty record is seven bytes and takes as long to look at as any other."""
    usual = BatchRules(parse_log_config({}))
    opening = BatchRules(parse_log_config({"cleanup.policy": "compact"}))
    for codec in (0, 3):
        for count in (RECORDS_AT_ONCE_MAX, RECORDS_AT_ONCE_MAX + 1):
            # What the header says is all that is looked at, and it may lie: a thread finds out as well.
            data = edited(packed(codec, 0, 1), 57, ">i", count)
            is_long = count > RECORDS_AT_ONCE_MAX
            assert takes_long(data, 0, len(data), usual, NOW_MS) is (is_long and codec == 0)
            assert takes_long(data, 0, len(data), opening, NOW_MS) is is_long


def test_the_usual_batches_of_a_megabyte_are_walked_at_once() -> None:
    rules = BatchRules(parse_log_config({}))
    for value_bytes, count in ((1000, 1000), (88, 10_000)):
        data = packed(0, value_bytes, count)
        assert takes_long(data, 0, len(data), rules, NOW_MS) is (count > 4000 and not is_compiled())


def used_up_after(data: bytes, **settings: str) -> int:
    rules = BatchRules(parse_log_config({name.replace("_", "."): text for name, text in settings.items()}))
    share = LoopShare()
    count = 0
    while not share.is_used_up:
        share.count(data, 0, len(data), rules, NOW_MS)
        count += 1
    return count


def test_batches_that_come_together_share_what_may_be_walked_at_once() -> None:
    for codec in (0, 3):
        data = packed(codec, 0, RECORDS_AT_ONCE_MAX // 2)
        assert used_up_after(data, cleanup_policy="compact") == 3
    assert used_up_after(packed(0, 1 << 20)) == 4, "all bytes are summed and written"
    assert used_up_after(data) > 3, "the records of a compressed batch that is not opened take no time"
    assert used_up_after(edited(packed(0, 1 << 20), 57, ">i", -1)) == 4, "nor does a header give any back"


def test_a_long_walk_breathes() -> None:
    breaths: list[None] = []
    data = packed(1, 10, 20_000)
    rules = BatchRules(parse_log_config({"cleanup.policy": "compact"}))
    valid = validate(data, 0, len(data), rules, NOW_MS, Origin.CLIENT, lambda: breaths.append(None))
    assert valid.batch.record_count == 20_000
    assert len(breaths) > 3
