"""Which partition each row of the sink goes to, for whole columns at a time.

A row's own `partition` comes first; then its key, by murmur2 as Kafka's producers have it, so that a key goes where
every other producer sends it. Rows with neither go in runs, each to another partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

RUN_ROWS: Final = 4096
"""Rows without a key that go to one partition before it is another's turn."""

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each key (null: of no bytes), computed for all keys of one length together."""
    import numpy as np
    import pyarrow as pa

    array = keys.cast(pa.large_binary())
    count = len(array)
    hashes = np.zeros(count, np.uint32)
    if count == 0:
        return hashes
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1, 8 * array.offset)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    with np.errstate(over="ignore"):
        for length in np.unique(lengths):
            rows = np.nonzero(lengths == length)[0]
            at = offsets[:-1][rows]
            hashes[rows] = _murmur2_of_length(data, at, int(length))
    return hashes


def _murmur2_of_length(data: Any, at: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint32]:
    import numpy as np

    m = np.uint32(_M)
    h = np.full(len(at), np.uint32((_SEED ^ length) & 0xFFFFFFFF), np.uint32)

    def byte(offset: int) -> npt.NDArray[np.uint32]:
        return np.asarray(data[at + offset], np.uint32)

    for start in range(0, length - 3, 4):
        k = byte(start) | byte(start + 1) << np.uint32(8) | byte(start + 2) << np.uint32(16)
        k |= byte(start + 3) << np.uint32(24)
        k *= m
        k ^= k >> np.uint32(24)
        k *= m
        h *= m
        h ^= k
    rest = length & ~3
    if length % 4 == 3:
        h ^= byte(rest + 2) << np.uint32(16)
    if length % 4 >= 2:
        h ^= byte(rest + 1) << np.uint32(8)
    if length % 4 >= 1:
        h ^= byte(rest)
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h


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
            assigned = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int64)
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
