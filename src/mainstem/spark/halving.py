"""A batch that is more than its topic takes, as two.

Rows do not change: they keep their order, timestamps and headers. Where the batch had sequences, the halves have the
same ones, because the broker took none of them.
"""

from __future__ import annotations

from typing import Final

from mainstem.protocol.batch import BatchView
from mainstem.protocol.columns import MAX_BODY_BYTES, Columns, encode_columns

SEQUENCE_MASK: Final = 0x7FFFFFFF


def halves(batch: BatchView, columns: Columns, level: int | None) -> list[bytes]:
    """The first and the second half of the rows of `batch`, which `columns` has; it has two at least."""
    rows = columns.to_arrow(("key", "value", "timestamp", "headers"), timestamp_unit="ms")
    middle = rows.num_rows // 2
    made: list[bytes] = []
    for first, some in ((0, rows.slice(0, middle)), (middle, rows.slice(middle))):
        sequence = int(batch.base_sequence)
        made += encode_columns(
            some["key"],
            some["value"],
            some["timestamp"],
            some["headers"],
            codec=batch.codec,
            level=level,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=(sequence + first) & SEQUENCE_MASK if sequence >= 0 else sequence,
            transactional=batch.is_transactional,
            max_batch_bytes=MAX_BODY_BYTES,
        )
    return made
