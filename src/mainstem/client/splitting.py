"""A batch that the broker found too large, as several smaller ones.

Records do not change: they keep their order, timestamps and futures. Where the batch had sequences, the parts have the
same ones, because the broker took none of them.
"""

from __future__ import annotations

from mainstem.client.batches import ProducerBatch, next_sequence
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import encode_headers
from mainstem.protocol.records import iterate_records
from mainstem.protocol.varint import varint_size


def split(batch: ProducerBatch, limit: int, codec: int, level: int | None) -> list[ProducerBatch]:
    """Batches of at most `limit` bytes before compression, of one record each where that is more."""
    parts: list[ProducerBatch] = []
    part: ProducerBatch | None = None
    whole = BatchView(batch.header(codec, False) + batch.body, 0)
    for record in iterate_records(whole):
        tail = encode_headers(record.headers)
        size = 0
        if part is not None:
            size = part.record_size(record.timestamp, record.key, record.value, tail)
            if part.size + varint_size(size) + size > limit:
                part = None
        if part is None:
            part = ProducerBatch(batch.topic, batch.partition, batch.created_s, batch.ordinal)
            parts.append(part)
            size = part.record_size(record.timestamp, record.key, record.value, tail)
        part.append(record.timestamp, record.key, record.value, tail, size)
    sequence = batch.sequence
    for part in parts:
        part.close(codec, level)
        part.attempts = batch.attempts
        if batch.has_sequence:
            part.producer_id, part.producer_epoch = batch.producer_id, batch.producer_epoch
            part.sequence = sequence
            sequence = next_sequence(sequence, part.count)
    return parts
