"""Arrow tables to records: encoded column by column in compiled code, batch by batch, with no object per record.

Columns are named as a consumer's `fetch_arrow` names them: `key`, `value`, `timestamp`, `headers`, and, where the table
says where its rows go, `topic` and `partition`; others are an error, because nothing would be sent of them. Rows
without a partition go where `send` would send them: where the `partitioner` says, by the hash of their key, or, without
one, batch by batch to where least is waiting. The rows of one partition keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.accumulator import Partitioner
from mainstem.client.batches import ProducerBatch
from mainstem.client.errors import InvalidPartitionsError, SerializationError
from mainstem.client.partitioner import partitions_for_keys
from mainstem.client.serializers import check_place
from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.columns import byte_column, encode_columns
from mainstem.protocol.compression import CODEC_NAMES

if TYPE_CHECKING:
    from mainstem.client.producer import AsyncProducer

COLUMNS: Final = ("key", "value", "timestamp", "headers", "topic", "partition")
CHUNK_BYTES: Final = 4 << 20
"""About how much is encoded in one go: enough for full batches, little enough not to hold up the loop."""
CHUNK_ROWS_MAX: Final = 1 << 17
BATCH_BYTES: Final = 1 << 20


async def send_table(
    producer: AsyncProducer, table: Any, topic: str | None = None, *, partition: int | None = None
) -> int:
    """Sends every row of a table or record batch, and waits until all are acknowledged; how many they are.

    `topic` and `partition` stand for columns of that name. Where a batch was refused its error is raised when the
    others are answered.
    """
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise SerializationError(f"a {type(table).__name__} is no pyarrow.Table; pyarrow.Table.from_… makes one of it")
    if partition is not None:
        check_place(topic or "", partition, None)
    table = _checked(table)
    sent: list[ProducerBatch] = []
    for name, rows in _by_topic(table, topic):
        for chunk in _chunks(rows):
            await _send_chunk(producer, name, chunk, partition, sent)
    await producer.flush_batches(sent)
    for batch in sent:
        error = batch.first_error()
        if error is not None:
            raise error
    return len(table)


def _checked(table: Any) -> Any:
    """The table with columns of types that can be sent; SerializationError where that cannot be."""
    import pyarrow as pa

    names = table.column_names
    for name in names:
        if name not in COLUMNS:
            raise SerializationError(f"the table has a column {name!r}; columns are {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise SerializationError(f"the table has {names.count(name)} columns {name!r}")
    if "key" not in names and "value" not in names:
        raise SerializationError("the table has neither a column 'key' nor a column 'value'")
    is_of = pa.types
    for at, name in enumerate(names):
        kind = table.schema.field(at).type
        if name in ("key", "value", "topic"):
            inner = kind.value_type if is_of.is_dictionary(kind) else kind
            if not (_is_bytes(inner) or is_of.is_null(kind)):
                raise SerializationError(f"column {name!r} is {kind}; it is bytes or strings: cast or serialize it")
            if inner is not kind or is_of.is_string_view(kind) or is_of.is_binary_view(kind):
                plain = pa.large_string() if name == "topic" else pa.large_binary()
                table = table.set_column(at, name, table[name].cast(plain))
        elif name == "timestamp" and not (is_of.is_integer(kind) or is_of.is_timestamp(kind) or is_of.is_null(kind)):
            raise SerializationError(f"column {name!r} is {kind}; it is milliseconds or an Arrow timestamp")
        elif name == "partition" and not (is_of.is_integer(kind) or is_of.is_null(kind)):
            raise SerializationError(f"column {name!r} is {kind}; it is whole numbers")
        elif name == "headers":
            _check_headers(kind)
    return table


def _is_bytes(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_one(kind)
        for is_one in (
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
            types.is_binary_view,
            types.is_string,
            types.is_large_string,
            types.is_string_view,
        )
    )


def _check_headers(kind: Any) -> None:
    from pyarrow import types

    if types.is_map(kind):
        fields = {"key": kind.key_type, "value": kind.item_type}
    elif (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = {each.name: each.type for each in kind.value_type}
    else:
        fields = {}
    if set(fields) != {"key", "value"} or not all(_is_bytes(each) or types.is_null(each) for each in fields.values()):
        raise SerializationError(f"column 'headers' is {kind}; it is list<struct<key: string, value: binary>>")


def _by_topic(table: Any, topic: str | None) -> Iterator[tuple[str, Any]]:
    import pyarrow.compute as pc

    if topic is not None:
        yield topic, table
        return
    if "topic" not in table.column_names:
        raise SerializationError("no topic is given, and the table has no column 'topic'")
    names = table["topic"].unique().to_pylist()
    if None in names:
        raise SerializationError("a row has no topic")
    for name in names:
        yield name, table if len(names) == 1 else table.filter(pc.equal(table["topic"], name))


def _chunks(table: Any) -> Iterator[Any]:
    rows = len(table)
    if rows == 0:
        return
    size = max(1, min(CHUNK_ROWS_MAX, CHUNK_BYTES * rows // max(table.nbytes, 1)))
    for at in range(0, rows, size):
        yield table.slice(at, size)


async def _send_chunk(
    producer: AsyncProducer, topic: str, rows: Any, partition: int | None, sent: list[ProducerBatch]
) -> None:
    names = rows.column_names
    if partition is None and producer.accumulator.partitions_of(topic) == 0:
        await producer.topic_info(topic)
    options = producer.options
    has_keys = "key" in names and rows["key"].null_count < len(rows) and not options.partitioner_ignore_keys
    if partition is not None or not (has_keys or "partition" in names or options.partitioner is not None):
        await _encode_and_add(producer, topic, rows, partition, sent)
        return
    wanted, order = _sorted_by_partition(producer, topic, rows, has_keys)
    rows = rows.take(order)
    start = 0
    for each, count in wanted:
        await _encode_and_add(producer, topic, rows.slice(start, count), each, sent)
        start += count


def _sorted_by_partition(producer: AsyncProducer, topic: str, rows: Any, has_keys: bool) -> tuple[Any, Any]:
    """Each partition with how many rows it gets, and the order of the rows by partition."""
    import numpy as np

    count = producer.accumulator.partitions_of(topic)
    keyless = producer.accumulator.next_sticky(topic)
    if producer.options.partitioner is not None:
        chosen = np.array(_chosen_by(producer.options.partitioner, topic, rows, count), np.int64)
    elif has_keys:
        chosen = np.frombuffer(partitions_for_keys(byte_column(rows["key"]), count, keyless), np.int32)
    else:
        chosen = np.full(len(rows), keyless, np.int32)
    if "partition" in rows.column_names:
        given = rows["partition"].cast("int64").combine_chunks()
        chosen = np.where(given.is_valid(), given.fill_null(0), chosen)
    lowest, highest = int(chosen.min()), int(chosen.max())
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise InvalidPartitionsError(f"a row has partition {wrong}; the topic has {count}", topic=topic)
    found, counts = np.unique(chosen, return_counts=True)
    return zip(found.tolist(), counts.tolist(), strict=True), np.argsort(chosen, kind="stable")


def _chosen_by(partitioner: Partitioner, topic: str, rows: Any, count: int) -> list[int]:
    """Whoever has a partitioner of their own pays for objects: it is called with the bytes of every row."""
    keys, values = (
        rows[name].cast("binary").to_pylist() if name in rows.column_names else [None] * len(rows)
        for name in ("key", "value")
    )
    return [partitioner(topic, key, value, count) for key, value in zip(keys, values, strict=True)]


async def _encode_and_add(
    producer: AsyncProducer, topic: str, rows: Any, partition: int | None, sent: list[ProducerBatch]
) -> None:
    names = rows.column_names
    options = producer.options
    try:
        batches = encode_columns(
            rows["key"] if "key" in names else None,
            rows["value"] if "value" in names else None,
            rows["timestamp"] if "timestamp" in names else None,
            rows["headers"] if "headers" in names else None,
            timestamp=producer.now_ms(),
            codec=CODEC_NAMES.index(options.compression_type),
            level=producer.compression_level,
            max_batch_bytes=min(options.max_request_size, BATCH_BYTES),
        )
    except ValueError as error:
        raise SerializationError(str(error), topic=topic) from error
    for data in batches:
        view = BatchView(data, 0)
        where = producer.accumulator.next_sticky(topic) if partition is None else partition
        sent.append(
            await producer.add_batch_waiting(
                topic,
                where,
                data[HEADER_BYTES:],
                view.record_count,
                view.base_timestamp,
                view.max_timestamp,
                len(data),
            )
        )
