"""Produce, read and written by hand for the hot path, v3 to v13; tested equal to its declaration.

The broker reads a request without copying its records: a partition says where they lie in the frame, which is
immutable and lives as long as they do. The client writes a request as a list of buffers in which its batches stand as
they are, so that nothing joins them before the socket does.

What a version cannot carry is left out on writing, and has its default after reading; tagged fields that nobody
declared are skipped. The plain classes here are the fast twins of `messages.k00_produce`.

    v5  log start offset in the response             v9   flexible
    v8  errors of single records (KIP-467)           v10  the current leader, when it is another (KIP-951)
                                                     v13  topic ids in place of names (KIP-516)
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from mainstem.protocol.headers import encode_request_header, encode_response_header, read_response_header
from mainstem.protocol.primitives import (
    REQUEST_ELEMENTS_MAX,
    ZERO_UUID,
    Cursor,
    write_length,
    write_nullable_string,
    write_uvarint,
)

API_KEY: Final = 0
FLEXIBLE_FROM: Final = 9
RECORD_ERRORS_FROM: Final = 8
CURRENT_LEADER_FROM: Final = 10
TOPIC_IDS_FROM: Final = 13
LEADER_TAG_BYTES: Final = 9

Buffer = bytes | bytearray | memoryview


class ProducePartition:
    """One partition of a request: its records lie in the frame from `records_start` on, or are null (-1)."""

    __slots__ = ("index", "records_end", "records_start")

    def __init__(self, index: i64, records_start: i64, records_end: i64) -> None:
        self.index: i64 = index
        self.records_start: i64 = records_start
        self.records_end: i64 = records_end


class ProduceTopic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[ProducePartition]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ProduceRequest:
    """A request as the broker reads it."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: i64, timeout_ms: i64, topics: list[ProduceTopic]) -> None:
        self.transactional_id = transactional_id
        self.acks: i64 = acks
        self.timeout_ms: i64 = timeout_ms
        self.topics = topics


def read_produce_request(frame: bytes, position: i64, version: i64) -> ProduceRequest:
    """The request whose body begins at `position`; RemoteError when it is malformed."""
    compact = version >= FLEXIBLE_FROM
    cursor = Cursor(frame, position, REQUEST_ELEMENTS_MAX)
    transactional_id = cursor.nullable_string(compact)
    acks = cursor.int16()
    timeout_ms = cursor.int32()
    topics: list[ProduceTopic] = []
    for _ in range(cursor.array(compact)):
        name = ""
        topic_id = ZERO_UUID
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.string(compact)
        partitions: list[ProducePartition] = []
        for _ in range(cursor.array(compact)):
            index = cursor.int32()
            size = cursor.nullable_array(compact)
            start: i64 = -1
            if size >= 0:
                start = cursor.take(size)
            partitions.append(ProducePartition(index, start, start + size if size >= 0 else -1))
            if compact:
                cursor.skip_tags()
        topics.append(ProduceTopic(name, topic_id, partitions))
        if compact:
            cursor.skip_tags()
    if compact:
        cursor.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


class PartitionBatches:
    """The batches that a client sends to one partition."""

    __slots__ = ("batches", "index")

    def __init__(self, index: i64, batches: list[Buffer]) -> None:
        self.index: i64 = index
        self.batches = batches


class TopicBatches:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionBatches]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


def encode_produce_request(
    version: i64,
    correlation_id: i64,
    client_id: str | None,
    transactional_id: str | None,
    acks: i64,
    timeout_ms: i64,
    topics: list[TopicBatches],
) -> list[Buffer]:
    """A request as a frame in pieces, its size in the first; the batches are in the list as they were given."""
    compact = version >= FLEXIBLE_FROM
    first = BytesWriter()
    write_i32_be(first, 0)
    first.write(encode_request_header(API_KEY, version, correlation_id, client_id))
    writer = first
    write_nullable_string(writer, transactional_id, compact)
    write_i16_be(writer, i16(acks))
    write_i32_be(writer, i32(timeout_ms))
    write_length(writer, len(topics), compact)
    pieces: list[Buffer] = []
    total: i64 = 0
    for topic in topics:
        if version >= TOPIC_IDS_FROM:
            writer.write(topic.topic_id)
        else:
            write_nullable_string(writer, topic.name, compact)
        write_length(writer, len(topic.partitions), compact)
        for partition in topic.partitions:
            size: i64 = 0
            for batch in partition.batches:
                size += len(batch)
            write_i32_be(writer, i32(partition.index))
            write_length(writer, size, compact)
            if writer is not first:
                pieces.append(writer.getvalue())
                total += len(writer)
            pieces.extend(partition.batches)
            total += size
            writer = BytesWriter()
            if compact:
                writer.append(0)
        if compact:
            writer.append(0)
    if compact:
        writer.append(0)
    if writer is not first:
        pieces.append(writer.getvalue())
        total += len(writer)
    put_size(first, total + len(first) - 4)
    pieces.insert(0, first.getvalue())
    return pieces


def put_size(writer: BytesWriter, size: i64) -> None:
    """Fills in the size at the start of a frame, once it is known."""
    if size > 0x7FFFFFFF:
        raise ValueError(f"a frame of {size} bytes; 2^31 - 1 are the most that one can have")
    for at in range(4):
        writer[at] = u8((size >> (24 - 8 * at)) & 0xFF)


class RecordError:
    """Why the record at `batch_index` was refused."""

    __slots__ = ("batch_index", "message")

    def __init__(self, batch_index: i64, message: str | None) -> None:
        self.batch_index: i64 = batch_index
        self.message = message


class NodeEndpoint:
    """Where the broker is that leads now."""

    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(self, node_id: i64, host: str, port: i64, rack: str | None) -> None:
        self.node_id: i64 = node_id
        self.host = host
        self.port: i64 = port
        self.rack = rack


class ProducePartitionResponse:
    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        index: i64,
        error_code: i64,
        base_offset: i64,
        log_append_time_ms: i64 = -1,
        log_start_offset: i64 = -1,
    ) -> None:
        self.index: i64 = index
        self.error_code: i64 = error_code
        self.base_offset: i64 = base_offset
        self.log_append_time_ms: i64 = log_append_time_ms
        self.log_start_offset: i64 = log_start_offset
        self.record_errors: list[RecordError] | None = None
        self.error_message: str | None = None
        self.leader_id: i64 = -1
        self.leader_epoch: i64 = -1


class ProduceTopicResponse:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[ProducePartitionResponse]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ProduceResponse:
    __slots__ = ("node_endpoints", "throttle_time_ms", "topics")

    def __init__(self, topics: list[ProduceTopicResponse], throttle_time_ms: i64 = 0) -> None:
        self.topics = topics
        self.throttle_time_ms: i64 = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] | None = None


def encode_produce_response(response: ProduceResponse, version: i64, correlation_id: i64) -> bytes:
    """A response as a frame, its size included."""
    compact = version >= FLEXIBLE_FROM
    writer = BytesWriter()
    write_i32_be(writer, 0)
    writer.write(encode_response_header(API_KEY, version, correlation_id))
    write_length(writer, len(response.topics), compact)
    for topic in response.topics:
        if version >= TOPIC_IDS_FROM:
            writer.write(topic.topic_id)
        else:
            write_nullable_string(writer, topic.name, compact)
        write_length(writer, len(topic.partitions), compact)
        for partition in topic.partitions:
            _write_partition_response(writer, partition, version, compact)
        if compact:
            writer.append(0)
    write_i32_be(writer, i32(response.throttle_time_ms))
    if compact:
        write_node_endpoints(writer, response.node_endpoints if version >= CURRENT_LEADER_FROM else None)
    put_size(writer, len(writer) - 4)
    return writer.getvalue()


def _write_partition_response(
    writer: BytesWriter, partition: ProducePartitionResponse, version: i64, compact: bool
) -> None:
    write_i32_be(writer, i32(partition.index))
    write_i16_be(writer, i16(partition.error_code))
    write_i64_be(writer, partition.base_offset)
    write_i64_be(writer, partition.log_append_time_ms)
    if version >= 5:
        write_i64_be(writer, partition.log_start_offset)
    if version >= RECORD_ERRORS_FROM:
        errors = partition.record_errors
        if errors is None:
            write_length(writer, 0, compact)
        else:
            write_length(writer, len(errors), compact)
            for error in errors:
                write_i32_be(writer, i32(error.batch_index))
                write_nullable_string(writer, error.message, compact)
                if compact:
                    writer.append(0)
        write_nullable_string(writer, partition.error_message, compact)
    if compact:
        if version >= CURRENT_LEADER_FROM and (partition.leader_id != -1 or partition.leader_epoch != -1):
            writer.append(1)
            write_leader_tag(writer, 0, partition.leader_id, partition.leader_epoch)
        else:
            writer.append(0)


def write_leader_tag(writer: BytesWriter, tag: i64, leader_id: i64, leader_epoch: i64) -> None:
    """A tagged field with a leader and its epoch, as Produce and Fetch have it (KIP-951)."""
    write_uvarint(writer, tag)
    writer.append(LEADER_TAG_BYTES)
    write_i32_be(writer, i32(leader_id))
    write_i32_be(writer, i32(leader_epoch))
    writer.append(0)


def write_node_endpoints(writer: BytesWriter, endpoints: list[NodeEndpoint] | None) -> None:
    """The section of tagged fields that ends a response of Produce or Fetch: the new leaders' addresses."""
    if not endpoints:
        writer.append(0)
        return
    content = BytesWriter()
    write_length(content, len(endpoints), True)
    for endpoint in endpoints:
        write_i32_be(content, i32(endpoint.node_id))
        write_nullable_string(content, endpoint.host, True)
        write_i32_be(content, i32(endpoint.port))
        write_nullable_string(content, endpoint.rack, True)
        content.append(0)
    writer.append(1)
    writer.append(0)
    write_uvarint(writer, len(content))
    writer.write(content.getvalue())


def read_node_endpoints(cursor: Cursor) -> list[NodeEndpoint]:
    endpoints: list[NodeEndpoint] = []
    for _ in range(cursor.array(True)):
        node_id = cursor.int32()
        host = cursor.string(True)
        port = cursor.int32()
        endpoints.append(NodeEndpoint(node_id, host, port, cursor.nullable_string(True)))
        cursor.skip_tags()
    return endpoints


def read_produce_response(frame: bytes, version: i64) -> tuple[i64, ProduceResponse]:
    """The correlation id and the content of a response frame (without its size)."""
    compact = version >= FLEXIBLE_FROM
    correlation_id, position = read_response_header(frame, compact)
    cursor = Cursor(frame, position)
    topics: list[ProduceTopicResponse] = []
    for _ in range(cursor.array(compact)):
        name = ""
        topic_id = ZERO_UUID
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.string(compact)
        partitions = [_read_partition_response(cursor, version, compact) for _ in range(cursor.array(compact))]
        topics.append(ProduceTopicResponse(name, topic_id, partitions))
        if compact:
            cursor.skip_tags()
    response = ProduceResponse(topics, cursor.int32())
    if compact:
        for _ in range(cursor.uvarint()):
            tag = cursor.uvarint()
            stop = cursor.tag_end()
            if tag == 0 and version >= CURRENT_LEADER_FROM:
                response.node_endpoints = read_node_endpoints(cursor)
                cursor.leave_tag(stop)
            cursor.at = stop
    return correlation_id, response


def _read_partition_response(cursor: Cursor, version: i64, compact: bool) -> ProducePartitionResponse:
    index = cursor.int32()
    error_code = cursor.int16()
    base_offset = cursor.int64()
    partition = ProducePartitionResponse(index, error_code, base_offset, cursor.int64())
    if version >= 5:
        partition.log_start_offset = cursor.int64()
    if version >= RECORD_ERRORS_FROM:
        errors: list[RecordError] = []
        for _ in range(cursor.array(compact)):
            batch_index = cursor.int32()
            errors.append(RecordError(batch_index, cursor.nullable_string(compact)))
            if compact:
                cursor.skip_tags()
        partition.record_errors = errors
        partition.error_message = cursor.nullable_string(compact)
    if compact:
        for _ in range(cursor.uvarint()):
            tag = cursor.uvarint()
            stop = cursor.tag_end()
            if tag == 0 and version >= CURRENT_LEADER_FROM:
                partition.leader_id = cursor.int32()
                partition.leader_epoch = cursor.int32()
                cursor.skip_tags()
                cursor.leave_tag(stop)
            cursor.at = stop
    return partition
