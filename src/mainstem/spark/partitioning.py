"""Which partition each row of the sink goes to, for whole columns at a time.

A row's own `partition` comes first; then its key, by murmur2 as Kafka's producers have it, so that a key goes where
every other producer sends it. Rows with neither go in runs, each to another partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.partitioner import partitions_for_keys
from mainstem.protocol.columns import byte_column

if TYPE_CHECKING:
    import pyarrow as pa

NARROW_MAX: Final = 0x7FFF
RUN_ROWS: Final = 4096
"""Rows without a key that go to one partition before it is another's turn."""


def rows_by_partition(assigned: Any, count: int) -> Iterator[tuple[int, pa.Array | None]]:
    """Each partition that gets rows, with the numbers of its rows in order; None stands for all of them."""
    import numpy as np
    import pyarrow as pa

    counts = np.bincount(assigned, minlength=count)
    there = np.nonzero(counts)[0].tolist()
    if len(there) == 1:
        yield there[0], None
        return
    # Of two bytes they are sorted by their digits, without comparing.
    order = np.argsort(assigned.astype(np.int16) if count <= NARROW_MAX else assigned, kind="stable")
    end = 0
    for number in there:
        start, end = end, end + int(counts[number])
        yield number, pa.Array.from_buffers(pa.int64(), end - start, [None, pa.py_buffer(order[start:end])])


class Partitioner:
    """Made for one task; remembers whose turn it is."""

    def __init__(self, first: int) -> None:
        self._turn = first

    def assign(self, count: int, keys: pa.Array | None, own: pa.Array | None, topic: str, rows: int) -> Any:
        """The partition of each of `rows` rows, for a topic of `count` partitions."""
        import numpy as np

        if keys is None or keys.null_count == rows:
            assigned = self._by_turns(rows, count)
        else:
            assigned = np.frombuffer(partitions_for_keys(byte_column(keys), count, 0), np.int32).astype(np.int64)
            if keys.null_count:
                keyless = np.nonzero(keys.is_null().to_numpy(zero_copy_only=False))[0]
                assigned[keyless] = self._by_turns(len(keyless), count)
        if own is not None and own.null_count < rows:
            given = own.is_valid().to_numpy(zero_copy_only=False)
            numbers = own.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            wrong = given & ((numbers < 0) | (numbers >= count))
            if wrong.any():
                number = int(numbers[wrong][0])
                raise ValueError(f"partition: {topic} has partitions 0 to {count - 1}; a row says {number}")
            assigned = np.where(given, numbers, assigned)
        return assigned

    def _by_turns(self, rows: int, count: int) -> Any:
        import numpy as np

        runs = np.arange(rows, dtype=np.int64) // RUN_ROWS
        assigned = (runs + self._turn) % count
        self._turn += int(runs[-1]) + 1 if rows else 0
        return assigned
