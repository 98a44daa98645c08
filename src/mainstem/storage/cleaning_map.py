"""From key to the newest offset it was seen at, in a fixed amount of memory and without an object per key.

As in Kafka an entry is 24 bytes whatever the key: 16 of its hash, 8 of the offset; two keys with one hash would be
taken for the same. Kafka hashes with MD5, for which anyone can make such a pair. Here both halves are Python's own
SipHash of bytes, keyed with a secret of this process, the second over the key behind a prefix: quicker, and not to be
steered by who chooses the keys. A map lives in one process and is never written down.

An open table with linear probing, of chunks that are made one by one (`allocate`), so that making or filling a large
one never holds the event loop for long.
"""

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

ENTRY_BYTES: Final = 24
LOAD_FACTOR: Final = 0.9

_CHUNK_SLOTS: Final = 8192
_CHUNK_SHIFT: Final = 13
_CHUNK_WORDS: Final = 24576
_POSITIVE: Final = 0x7FFFFFFFFFFFFFFF


class CleaningMap:
    """`latest_offset` is the offset up to which every key is in the map; the owner moves it."""

    def __init__(self, memory_bytes: i64, keys_max: i64, load_factor: float = LOAD_FACTOR) -> None:
        """`memory_bytes` bound the map; it is made smaller where `keys_max` keys need less."""
        slots: i64 = memory_bytes // ENTRY_BYTES
        wanted: i64 = int(int(keys_max) / load_factor) + 2
        self.slots: i64 = max(min(slots, wanted), 2)
        # One slot is always free, so that every probe ends.
        self.capacity: i64 = max(1, min(int(int(self.slots) * load_factor), self.slots - 1))
        self.size: i64 = 0
        self.latest_offset: i64 = -1
        self._chunks: list[vec[i64]] = []
        self._chunks_wanted: i64 = (self.slots + _CHUNK_SLOTS - 1) >> _CHUNK_SHIFT

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    @property
    def utilization(self) -> float:
        return int(self.size) / int(self.slots)

    def allocate(self) -> bool:
        """Makes one more chunk; False when all are there, which must be before the first `put`."""
        if len(self._chunks) < self._chunks_wanted:
            self._chunks.append(vec[i64]([0] * _CHUNK_WORDS))
        return len(self._chunks) < self._chunks_wanted

    def put(self, key: bytes, offset: i64) -> None:
        """Offsets must come in rising order. The caller looks at `is_full` first."""
        first: i64 = hash(key)
        second: i64 = hash(b"\x00newest offset:\x00" + key)
        slot: i64 = (first & _POSITIVE) % self.slots
        chunk = self._chunks[slot >> _CHUNK_SHIFT]
        at: i64 = (slot & (_CHUNK_SLOTS - 1)) * 3
        while chunk[at + 2] != 0:
            if chunk[at] == first and chunk[at + 1] == second:
                chunk[at + 2] = offset + 1
                return
            slot += 1
            at += 3
            if slot == self.slots:
                slot = 0
                at = 0
                chunk = self._chunks[0]
            elif at == _CHUNK_WORDS:
                at = 0
                chunk = self._chunks[slot >> _CHUNK_SHIFT]
        assert self.size + 1 < self.slots, "put into a full map"
        chunk[at] = first
        chunk[at + 1] = second
        chunk[at + 2] = offset + 1  # 0 is an empty slot
        self.size += 1

    def get(self, key: bytes) -> i64:
        """The newest offset of the key, or -1."""
        first: i64 = hash(key)
        second: i64 = hash(b"\x00newest offset:\x00" + key)
        slot: i64 = (first & _POSITIVE) % self.slots
        chunk = self._chunks[slot >> _CHUNK_SHIFT]
        at: i64 = (slot & (_CHUNK_SLOTS - 1)) * 3
        while chunk[at + 2] != 0:
            if chunk[at] == first and chunk[at + 1] == second:
                return chunk[at + 2] - 1
            slot += 1
            at += 3
            if slot == self.slots:
                slot = 0
                at = 0
                chunk = self._chunks[0]
            elif at == _CHUNK_WORDS:
                at = 0
                chunk = self._chunks[slot >> _CHUNK_SHIFT]
        return -1
