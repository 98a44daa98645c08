"""Topics as Arrow: what was fetched as columns, and a topic as a table, a DataFrame of pandas or one of Polars.

No Python object is made per record: one compiled pass notes where the fields lie, and Arrow gathers them
(`protocol.columns`). A `RecordBatch` is what one fetch brought of one partition. Columns that are not asked for are not
built.

    topic      string              timestamp       timestamp[ms, UTC]
    partition  int32               timestamp_type  int32 (0 created, 1 appended)
    offset     int64               headers         list<struct<key: string, value: binary>>, null without any
    key, value binary
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.decode import FetchedChunk
from mainstem.client.errors import InvalidOptionError, UnknownTopicOrPartitionError, error_for
from mainstem.client.types import TopicPartition
from mainstem.protocol.columns import decode_columns
from mainstem.protocol.errors import RemoteError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is built unless told otherwise."""

_FIELD: Final = {"timestamp_type": "timestampType"}
_KNOWN: Final = frozenset({*COLUMNS, "timestamp_type"})
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_FORMS: Final = ("arrow", "pandas", "polars")
_TOPIC_WAIT_MS: Final = 5000
"""How long a topic that nobody knows of is waited for: it may have been made just now, or be misspelled."""
_LOOK_MS: Final = 100.0
"""How often positions are looked at while nothing comes: the last offsets of a partition may hold no records."""


def check_columns(columns: Iterable[str]) -> tuple[str, ...]:
    names = tuple(columns)
    for name in names:
        if name not in _KNOWN:
            raise InvalidOptionError(f"columns has {name!r}; there are {', '.join((*COLUMNS, 'timestamp_type'))}")
        if names.count(name) > 1:
            raise InvalidOptionError(f"columns has {name!r} {names.count(name)} times")
    return names


def to_arrow(chunk: FetchedChunk, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """The records of a chunk that have not been taken; more than one batch only where they expand to gigabytes."""
    batches = []
    position = int(chunk.position)
    while position < chunk.end_offset:
        skip = chunk.fresh_filter()
        try:
            decoded = decode_columns(
                chunk.frame,
                chunk.start,
                chunk.end,
                from_offset=position,
                skip=None if skip is None else skip.skips,
                check_crcs=chunk.check_crcs,
            )
        except RemoteError as error:
            raise error_for(error.code, error.message, topic=chunk.topic, partition=int(chunk.partition)) from error
        if decoded.count:
            batch = decoded.to_arrow(
                [_FIELD.get(name, name) for name in columns], chunk.topic, int(chunk.partition), "ms"
            )
            batches.append(batch.rename_columns(list(columns)) if "timestamp_type" in columns else batch)
        if decoded.next_offset <= position:
            break
        position = int(decoded.next_offset)
    return batches


def empty_batch(columns: Sequence[str]) -> pa.RecordBatch:
    """No rows, and the columns that there would be."""
    decoded = decode_columns(b"")
    names = check_columns(columns)
    return decoded.to_arrow([_FIELD.get(name, name) for name in names], "", 0, "ms").rename_columns(list(names))


def read_topic(
    topic: str,
    *,
    last: str | float | None = None,
    since: int | float | None = None,
    until: int | float | None = None,
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    as_: str = "arrow",
    timeout_ms: float = 60_000,
    **options: Any,
) -> Any:
    """What is in a topic now, from its beginning or from a time on, as a table.

    `last` is how far back to go ("5m", "1.5h", or seconds); `since` and `until` are times in seconds since 1970, the
    second one not included. Reading ends at the end that the topic has when it begins. `as_` is "arrow", "pandas" or
    "polars". The rest are options of a consumer.
    """
    from mainstem.client.consumer_sync import Consumer

    if as_ not in _FORMS:
        raise InvalidOptionError(f"as_ is {as_!r}; it is one of {', '.join(_FORMS)}")
    if last is not None and since is not None:
        raise InvalidOptionError("last and since say the same; give one of them")
    names = check_columns(COLUMNS if columns is None else columns)
    since_ms = _since_ms(last, since)
    until_ms = None if until is None else int(until * 1000)
    fetched = names if until_ms is None or "timestamp" in names else (*names, "timestamp")
    options.setdefault("enable_auto_commit", False)
    options.setdefault("allow_auto_create_topics", False)
    with Consumer(**options) as consumer:
        known = consumer.partitions_for(topic, min(timeout_ms, _TOPIC_WAIT_MS))
        wanted = [TopicPartition(topic, number) for number in (known if partitions is None else partitions)]
        for tp in wanted:
            if tp.partition not in known:
                raise UnknownTopicOrPartitionError("there is no such partition", topic=topic, partition=tp.partition)
        batches = _read(consumer, wanted, since_ms, fetched, timeout_ms) if wanted else []
    return _shape(batches, names, fetched, until_ms, as_)


def _since_ms(last: str | float | None, since: float | None) -> int | None:
    if since is not None:
        return int(since * 1000)
    if last is None:
        return None
    return max(0, time.time_ns() // 1_000_000 - span_ms(last))


def span_ms(span: str | float) -> int:
    """How long "5m" is."""
    if isinstance(span, int | float):
        return int(span * 1000)
    found = _SPAN.fullmatch(span.strip())
    if found is None:
        raise InvalidOptionError(f"last is {span!r}; it is a number and one of {', '.join(_UNITS_MS)}, as in '5m'")
    return int(float(found[1]) * _UNITS_MS[found[2]])


def _read(
    consumer: Any, wanted: list[TopicPartition], since_ms: int | None, columns: tuple[str, ...], timeout_ms: float
) -> list[pa.RecordBatch]:
    ends: dict[TopicPartition, int] = consumer.end_offsets(wanted, timeout_ms)
    starts: dict[TopicPartition, int] = consumer.beginning_offsets(wanted, timeout_ms)
    if since_ms is not None:
        found = consumer.offsets_for_times(dict.fromkeys(wanted, since_ms), timeout_ms)
        starts = {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}
    left = {tp for tp in wanted if starts[tp] < ends[tp]}
    consumer.assign(sorted(left))
    for tp in left:
        consumer.seek(tp, starts[tp])
    topic = wanted[0].topic
    batches = []
    needs_offset = columns if {"partition", "offset"} <= set(columns) else (*columns, "partition", "offset")
    unread = dict(ends)
    positions: dict[TopicPartition, int] = {}
    last_s = time.monotonic()
    while left:
        came = consumer.fetch_arrow(min(timeout_ms, _LOOK_MS), columns=dict.fromkeys(needs_offset))
        for batch in came:
            tp = TopicPartition(topic, batch.column("partition")[0].as_py())
            batches.append(_up_to(batch, unread[tp]).select(list(columns)))
        before, positions = positions, {tp: consumer.position(tp) for tp in left}
        done = {tp for tp in left if positions[tp] >= ends[tp]}
        left -= done
        consumer.pause(*done)
        if came or positions != before:
            last_s = time.monotonic()
        elif time.monotonic() - last_s >= timeout_ms / 1000:
            raise error_for(
                7, f"nothing came of {len(left)} partitions within {timeout_ms:g} ms", topic=wanted[0].topic
            )
    return batches


def _up_to(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Offsets ascend, so what is past the end is at the end."""
    import numpy as np

    rows = int(np.searchsorted(batch.column("offset").to_numpy(), end))
    return batch if rows == batch.num_rows else batch.slice(0, rows)


def _shape(
    batches: list[pa.RecordBatch],
    names: tuple[str, ...],
    fetched: tuple[str, ...],
    until_ms: int | None,
    form: str,
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches(batches or [empty_batch(fetched)])
    if until_ms is not None:
        limit = pa.scalar(until_ms, pa.timestamp("ms", "UTC"))
        table = table.filter(pc.less(table.column("timestamp"), limit))
    table = table.select(list(names))
    if form == "pandas":
        return table.to_pandas()
    if form == "polars":
        import polars

        return polars.from_arrow(table)
    return table
