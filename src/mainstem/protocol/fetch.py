"""Fetch, read and written by hand for the hot path, v4 to v18; tested equal to its declaration.

The broker writes a response without touching its records: `encode_fetch_response` returns the bytes around them, and
in their place the partition whose records belong there, so that the caller may send them straight from a file. A
client or follower reads a response without copying its records: a partition says where they lie in the frame.

Records are never null in what we write, for librdkafka does not take that (KAFKA-18646): nothing is zero bytes long.
What a version cannot carry is left out on writing, and has its default after reading; tagged fields that nobody
declared are skipped. The plain classes here are the fast twins of `messages.k01_fetch`.

    v5   log start offset                  v12  flexible; diverging epochs (KIP-595)
    v7   sessions (KIP-227)                v13  topic ids in place of names (KIP-516)
    v9   the consumer's leader epoch       v15  replica state in a tagged field (KIP-903)
    v11  rack, preferred replica (KIP-392) v16  addresses of new leaders (KIP-951)
                                           v17  directory id, v18  high watermark (KIP-853, KIP-1166)
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from mainstem.protocol.headers import encode_request_header, encode_response_header, read_response_header
from mainstem.protocol.primitives import (
    REQUEST_ELEMENTS_MAX,
    ZERO_UUID,
    Cursor,
    write_length,
    write_nullable_string,
    write_uvarint,
)
from mainstem.protocol.produce import (
    NodeEndpoint,
    put_size,
    read_node_endpoints,
    write_leader_tag,
    write_node_endpoints,
)

API_KEY: Final = 1
SESSIONS_FROM: Final = 7
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
ENDPOINTS_FROM: Final = 16
DIRECTORY_ID_FROM: Final = 17
HIGH_WATERMARK_FROM: Final = 18
NO_HIGH_WATERMARK: Final = 0x7FFFFFFFFFFFFFFF
EPOCH_AND_OFFSET_TAG_BYTES: Final = 13
REPLICA_STATE_BYTES: Final = 13
UUID_TAG_BYTES: Final = 16


class FetchPartition:
    """What is wanted of one partition."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "replica_directory_id",
    )

    def __init__(self, partition: i64, fetch_offset: i64, max_bytes: i64) -> None:
        self.partition: i64 = partition
        self.fetch_offset: i64 = fetch_offset
        self.max_bytes: i64 = max_bytes
        self.current_leader_epoch: i64 = -1
        self.last_fetched_epoch: i64 = -1
        self.log_start_offset: i64 = -1
        self.replica_directory_id = ZERO_UUID
        self.high_watermark: i64 = NO_HIGH_WATERMARK


class FetchTopic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[FetchPartition]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ForgottenTopic:
    """Partitions that leave the session."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[int]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchRequest:
    """A request, on either side. `replica_id` is -1 for a consumer."""

    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(self, max_wait_ms: i64, min_bytes: i64, max_bytes: i64, topics: list[FetchTopic]) -> None:
        self.max_wait_ms: i64 = max_wait_ms
        self.min_bytes: i64 = min_bytes
        self.max_bytes: i64 = max_bytes
        self.topics = topics
        self.forgotten: list[ForgottenTopic] = []
        self.replica_id: i64 = -1
        self.replica_epoch: i64 = -1
        self.isolation_level: i64 = 0
        self.session_id: i64 = 0
        self.session_epoch: i64 = -1
        self.rack_id = ""
        self.cluster_id: str | None = None


def read_fetch_request(frame: bytes, position: i64, version: i64) -> FetchRequest:
    """The request whose body begins at `position`; RemoteError when it is malformed."""
    compact = version >= FLEXIBLE_FROM
    cursor = Cursor(frame, position, REQUEST_ELEMENTS_MAX)
    replica_id: i64 = -1
    if version < REPLICA_STATE_FROM:
        replica_id = cursor.int32()
    max_wait_ms = cursor.int32()
    min_bytes = cursor.int32()
    request = FetchRequest(max_wait_ms, min_bytes, cursor.int32(), [])
    request.replica_id = replica_id
    request.isolation_level = cursor.int8()
    if version >= SESSIONS_FROM:
        request.session_id = cursor.int32()
        request.session_epoch = cursor.int32()
    for _ in range(cursor.array(compact)):
        request.topics.append(_read_topic(cursor, version, compact))
    if version >= SESSIONS_FROM:
        for _ in range(cursor.array(compact)):
            request.forgotten.append(_read_forgotten(cursor, version, compact))
    if version >= 11:
        request.rack_id = cursor.string(compact)
    if compact:
        for _ in range(cursor.tags()):
            tag = cursor.uvarint()
            stop = cursor.tag_end()
            if tag == 0:
                request.cluster_id = cursor.nullable_string(True)
                cursor.leave_tag(stop)
            elif tag == 1 and version >= REPLICA_STATE_FROM:
                request.replica_id = cursor.int32()
                request.replica_epoch = cursor.int64()
                cursor.skip_tags()
                cursor.leave_tag(stop)
            cursor.at = stop
    return request


def _read_topic(cursor: Cursor, version: i64, compact: bool) -> FetchTopic:
    name = ""
    topic_id = ZERO_UUID
    if version >= TOPIC_IDS_FROM:
        topic_id = cursor.uuid()
    else:
        name = cursor.string(compact)
    partitions: list[FetchPartition] = []
    for _ in range(cursor.array(compact)):
        index = cursor.int32()
        current_leader_epoch: i64 = -1
        if version >= 9:
            current_leader_epoch = cursor.int32()
        partition = FetchPartition(index, cursor.int64(), 0)
        partition.current_leader_epoch = current_leader_epoch
        if version >= FLEXIBLE_FROM:
            partition.last_fetched_epoch = cursor.int32()
        if version >= 5:
            partition.log_start_offset = cursor.int64()
        partition.max_bytes = cursor.int32()
        if compact:
            for _ in range(cursor.tags()):
                tag = cursor.uvarint()
                stop = cursor.tag_end()
                if tag == 0 and version >= DIRECTORY_ID_FROM:
                    partition.replica_directory_id = cursor.uuid()
                    cursor.leave_tag(stop)
                elif tag == 1 and version >= HIGH_WATERMARK_FROM:
                    partition.high_watermark = cursor.int64()
                    cursor.leave_tag(stop)
                cursor.at = stop
        partitions.append(partition)
    if compact:
        cursor.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _read_forgotten(cursor: Cursor, version: i64, compact: bool) -> ForgottenTopic:
    name = ""
    topic_id = ZERO_UUID
    if version >= TOPIC_IDS_FROM:
        topic_id = cursor.uuid()
    else:
        name = cursor.string(compact)
    partitions: list[int] = [cursor.int32() for _ in range(cursor.array(compact))]
    if compact:
        cursor.skip_tags()
    return ForgottenTopic(name, topic_id, partitions)


def encode_fetch_request(request: FetchRequest, version: i64, correlation_id: i64, client_id: str | None) -> bytes:
    """A request as a frame, its size included."""
    compact = version >= FLEXIBLE_FROM
    writer = BytesWriter()
    write_i32_be(writer, 0)
    writer.write(encode_request_header(API_KEY, version, correlation_id, client_id))
    if version < REPLICA_STATE_FROM:
        write_i32_be(writer, i32(request.replica_id))
    write_i32_be(writer, i32(request.max_wait_ms))
    write_i32_be(writer, i32(request.min_bytes))
    write_i32_be(writer, i32(request.max_bytes))
    writer.append(request.isolation_level & 0xFF)
    if version >= SESSIONS_FROM:
        write_i32_be(writer, i32(request.session_id))
        write_i32_be(writer, i32(request.session_epoch))
    write_length(writer, len(request.topics), compact)
    for topic in request.topics:
        _write_topic_name(writer, topic.name, topic.topic_id, version, compact)
        write_length(writer, len(topic.partitions), compact)
        for partition in topic.partitions:
            _write_wanted_partition(writer, partition, version, compact)
        if compact:
            writer.append(0)
    if version >= SESSIONS_FROM:
        write_length(writer, len(request.forgotten), compact)
        for forgotten in request.forgotten:
            _write_topic_name(writer, forgotten.name, forgotten.topic_id, version, compact)
            write_length(writer, len(forgotten.partitions), compact)
            for index in forgotten.partitions:
                write_i32_be(writer, i32(index))
            if compact:
                writer.append(0)
    if version >= 11:
        write_nullable_string(writer, request.rack_id, compact)
    if compact:
        _write_request_tags(writer, request, version)
    put_size(writer, len(writer) - 4)
    return writer.getvalue()


def _write_topic_name(writer: BytesWriter, name: str, topic_id: bytes, version: i64, compact: bool) -> None:
    if version >= TOPIC_IDS_FROM:
        assert len(topic_id) == len(ZERO_UUID)
        writer.write(topic_id)
    else:
        write_nullable_string(writer, name, compact)


def _write_wanted_partition(writer: BytesWriter, partition: FetchPartition, version: i64, compact: bool) -> None:
    write_i32_be(writer, i32(partition.partition))
    if version >= 9:
        write_i32_be(writer, i32(partition.current_leader_epoch))
    write_i64_be(writer, partition.fetch_offset)
    if version >= FLEXIBLE_FROM:
        write_i32_be(writer, i32(partition.last_fetched_epoch))
    if version >= 5:
        write_i64_be(writer, partition.log_start_offset)
    write_i32_be(writer, i32(partition.max_bytes))
    if compact:
        has_directory = version >= DIRECTORY_ID_FROM and partition.replica_directory_id != ZERO_UUID
        has_high_watermark = version >= HIGH_WATERMARK_FROM and partition.high_watermark != NO_HIGH_WATERMARK
        writer.append(int(has_directory) + int(has_high_watermark))
        if has_directory:
            writer.append(0)
            writer.append(UUID_TAG_BYTES)
            writer.write(partition.replica_directory_id)
        if has_high_watermark:
            writer.append(1)
            writer.append(8)
            write_i64_be(writer, partition.high_watermark)


def _write_request_tags(writer: BytesWriter, request: FetchRequest, version: i64) -> None:
    has_cluster = request.cluster_id is not None
    has_replica = version >= REPLICA_STATE_FROM and (request.replica_id != -1 or request.replica_epoch != -1)
    writer.append(int(has_cluster) + int(has_replica))
    if has_cluster:
        content = BytesWriter()
        write_nullable_string(content, request.cluster_id, True)
        writer.append(0)
        write_uvarint(writer, len(content))
        writer.write(content.getvalue())
    if has_replica:
        writer.append(1)
        writer.append(REPLICA_STATE_BYTES)
        write_i32_be(writer, i32(request.replica_id))
        write_i64_be(writer, request.replica_epoch)
        writer.append(0)


class AbortedTransaction:
    __slots__ = ("first_offset", "producer_id")

    def __init__(self, producer_id: i64, first_offset: i64) -> None:
        self.producer_id: i64 = producer_id
        self.first_offset: i64 = first_offset


class FetchPartitionResponse:
    """What came of one partition.

    On the way out `records_size` is how many bytes `source`, the caller's own, will put in their place. On the way in
    the records are `frame[records_start : records_start + records_size]`; `records_start` is -1 where they were null.
    """

    __slots__ = (
        "aborted",
        "diverging_end_offset",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "index",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_start_offset",
        "preferred_read_replica",
        "records_size",
        "records_start",
        "snapshot_end_offset",
        "snapshot_epoch",
        "source",
    )

    def __init__(self, index: i64, error_code: i64, high_watermark: i64, records_size: i64 = 0) -> None:
        self.index: i64 = index
        self.error_code: i64 = error_code
        self.high_watermark: i64 = high_watermark
        self.last_stable_offset: i64 = -1
        self.log_start_offset: i64 = -1
        self.diverging_epoch: i64 = -1
        self.diverging_end_offset: i64 = -1
        self.leader_id: i64 = -1
        self.leader_epoch: i64 = -1
        self.snapshot_end_offset: i64 = -1
        self.snapshot_epoch: i64 = -1
        self.aborted: list[AbortedTransaction] | None = None
        self.preferred_read_replica: i64 = -1
        self.records_size: i64 = records_size
        self.records_start: i64 = -1
        self.source: object = None


class FetchTopicResponse:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[FetchPartitionResponse]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchResponse:
    __slots__ = ("error_code", "node_endpoints", "session_id", "throttle_time_ms", "topics")

    def __init__(self, topics: list[FetchTopicResponse], error_code: i64 = 0, session_id: i64 = 0) -> None:
        self.topics = topics
        self.error_code: i64 = error_code
        self.session_id: i64 = session_id
        self.throttle_time_ms: i64 = 0
        self.node_endpoints: list[NodeEndpoint] | None = None


FetchPiece = bytes | FetchPartitionResponse


def encode_fetch_response(response: FetchResponse, version: i64, correlation_id: i64) -> list[FetchPiece]:
    """A response as a frame in pieces, its size in the first: bytes, and where a partition's records go, the partition.

    A partition without records (`records_size` 0) has no place of its own in the list.
    """
    compact = version >= FLEXIBLE_FROM
    first = BytesWriter()
    write_i32_be(first, 0)
    first.write(encode_response_header(API_KEY, version, correlation_id))
    write_i32_be(first, i32(response.throttle_time_ms))
    if version >= SESSIONS_FROM:
        write_i16_be(first, i16(response.error_code))
        write_i32_be(first, i32(response.session_id))
    write_length(first, len(response.topics), compact)
    pieces: list[FetchPiece] = []
    total: i64 = 0
    writer = first
    for topic in response.topics:
        _write_topic_name(writer, topic.name, topic.topic_id, version, compact)
        write_length(writer, len(topic.partitions), compact)
        for partition in topic.partitions:
            _write_before_records(writer, partition, version, compact)
            if partition.records_size > 0:
                if writer is not first:
                    pieces.append(writer.getvalue())
                    total += len(writer)
                pieces.append(partition)
                total += partition.records_size
                writer = BytesWriter()
            if compact:
                _write_partition_tags(writer, partition)
        if compact:
            writer.append(0)
    if compact:
        write_node_endpoints(writer, response.node_endpoints if version >= ENDPOINTS_FROM else None)
    if writer is not first:
        total += len(writer)
        if len(writer) > 0:
            pieces.append(writer.getvalue())
    put_size(first, total + len(first) - 4)
    pieces.insert(0, first.getvalue())
    return pieces


def _write_before_records(writer: BytesWriter, partition: FetchPartitionResponse, version: i64, compact: bool) -> None:
    write_i32_be(writer, i32(partition.index))
    write_i16_be(writer, i16(partition.error_code))
    write_i64_be(writer, partition.high_watermark)
    write_i64_be(writer, partition.last_stable_offset)
    if version >= 5:
        write_i64_be(writer, partition.log_start_offset)
    aborted = partition.aborted
    if aborted is None:
        write_length(writer, -1, compact)
    else:
        write_length(writer, len(aborted), compact)
        for transaction in aborted:
            write_i64_be(writer, transaction.producer_id)
            write_i64_be(writer, transaction.first_offset)
            if compact:
                writer.append(0)
    if version >= 11:
        write_i32_be(writer, i32(partition.preferred_read_replica))
    assert partition.records_size >= 0
    write_length(writer, partition.records_size, compact)


def _write_partition_tags(writer: BytesWriter, partition: FetchPartitionResponse) -> None:
    has_diverging = partition.diverging_epoch != -1 or partition.diverging_end_offset != -1
    has_leader = partition.leader_id != -1 or partition.leader_epoch != -1
    has_snapshot = partition.snapshot_end_offset != -1 or partition.snapshot_epoch != -1
    writer.append(int(has_diverging) + int(has_leader) + int(has_snapshot))
    if has_diverging:
        writer.append(0)
        writer.append(EPOCH_AND_OFFSET_TAG_BYTES)
        write_i32_be(writer, i32(partition.diverging_epoch))
        write_i64_be(writer, partition.diverging_end_offset)
        writer.append(0)
    if has_leader:
        write_leader_tag(writer, 1, partition.leader_id, partition.leader_epoch)
    if has_snapshot:
        writer.append(2)
        writer.append(EPOCH_AND_OFFSET_TAG_BYTES)
        write_i64_be(writer, partition.snapshot_end_offset)
        write_i32_be(writer, i32(partition.snapshot_epoch))
        writer.append(0)


def read_fetch_response(frame: bytes, version: i64) -> tuple[i64, FetchResponse]:
    """The correlation id and the content of a response frame (without its size)."""
    compact = version >= FLEXIBLE_FROM
    correlation_id, position = read_response_header(frame, compact)
    cursor = Cursor(frame, position)
    response = FetchResponse([])
    response.throttle_time_ms = cursor.int32()
    if version >= SESSIONS_FROM:
        response.error_code = cursor.int16()
        response.session_id = cursor.int32()
    for _ in range(cursor.array(compact)):
        name = ""
        topic_id = ZERO_UUID
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.string(compact)
        partitions = [_read_partition_response(cursor, version, compact) for _ in range(cursor.array(compact))]
        response.topics.append(FetchTopicResponse(name, topic_id, partitions))
        if compact:
            cursor.skip_tags()
    if compact:
        for _ in range(cursor.uvarint()):
            tag = cursor.uvarint()
            stop = cursor.tag_end()
            if tag == 0 and version >= ENDPOINTS_FROM:
                response.node_endpoints = read_node_endpoints(cursor)
                cursor.leave_tag(stop)
            cursor.at = stop
    return correlation_id, response


def _read_partition_response(cursor: Cursor, version: i64, compact: bool) -> FetchPartitionResponse:
    index = cursor.int32()
    error_code = cursor.int16()
    partition = FetchPartitionResponse(index, error_code, cursor.int64())
    partition.last_stable_offset = cursor.int64()
    if version >= 5:
        partition.log_start_offset = cursor.int64()
    count = cursor.nullable_array(compact)
    if count >= 0:
        aborted: list[AbortedTransaction] = []
        for _ in range(count):
            producer_id = cursor.int64()
            aborted.append(AbortedTransaction(producer_id, cursor.int64()))
            if compact:
                cursor.skip_tags()
        partition.aborted = aborted
    if version >= 11:
        partition.preferred_read_replica = cursor.int32()
    size = cursor.nullable_array(compact)
    if size >= 0:
        partition.records_start = cursor.take(size)
        partition.records_size = size
    if compact:
        for _ in range(cursor.uvarint()):
            tag = cursor.uvarint()
            stop = cursor.tag_end()
            if tag == 0:
                partition.diverging_epoch = cursor.int32()
                partition.diverging_end_offset = cursor.int64()
            elif tag == 1:
                partition.leader_id = cursor.int32()
                partition.leader_epoch = cursor.int32()
            elif tag == 2:
                partition.snapshot_end_offset = cursor.int64()
                partition.snapshot_epoch = cursor.int32()
            if tag <= 2:
                cursor.skip_tags()
                cursor.leave_tag(stop)
            cursor.at = stop
    return partition
