"""Reads a partition's folder with nothing of ours but this file, and says what is wrong with it.

An oracle for D1 and D6: it walks the batches, works out what indexes, producer snapshots, aborted transactions and
leader epochs must hold, and compares. It is tried on what Kafka writes, so that it cannot share our mistakes.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

HEADER = struct.Struct(">qiiBIhiqqqhii")
PRODUCER = struct.Struct(">qhiqiqiq")
ABORTED = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    last_offset: int
    position: int
    size: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_delta: int
    count: int
    records: bytes

    @property
    def is_transactional(self) -> bool:
        return self.attributes & 0x10 != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & 0x20 != 0


@dataclass
class Producer:
    """One entry of a snapshot."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    open_since: int = -1


@dataclass
class Replay:
    """State that follows from the batches alone."""

    producers: dict[int, Producer] = field(default_factory=dict)
    unstable: dict[int, int] = field(default_factory=dict)
    """Producer id to first offset, of transactions that are open."""
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        entry = self.producers.setdefault(batch.producer_id, Producer(batch.producer_epoch))
        if batch.is_control:
            self._add_marker(entry, batch)
            return
        entry.epoch = batch.producer_epoch
        entry.last_sequence = (batch.base_sequence + batch.last_delta) & 0x7FFFFFFF
        entry.last_offset, entry.delta, entry.timestamp = batch.last_offset, batch.last_delta, batch.max_timestamp
        if batch.is_transactional and entry.open_since < 0:
            entry.open_since = batch.base_offset
            self.unstable[batch.producer_id] = batch.base_offset

    def _add_marker(self, entry: Producer, batch: Batch) -> None:
        kind, coordinator_epoch = control_record(batch.records)
        if kind is None:
            return
        if batch.producer_epoch != entry.epoch:
            # The marker of a newer epoch forgets the batches of the older one.
            entry.epoch = batch.producer_epoch
            entry.last_sequence, entry.last_offset, entry.delta = -1, -1, 0
        entry.timestamp = batch.max_timestamp
        entry.coordinator_epoch = coordinator_epoch
        first = self.unstable.pop(batch.producer_id, None)
        entry.open_since = -1
        if first is not None and kind == 0:
            stable = min(self.unstable.values(), default=batch.last_offset + 1)
            self.aborted.append((batch.producer_id, first, batch.last_offset, stable))


def control_record(records: bytes) -> tuple[int | None, int]:
    """(0 abort or 1 commit, coordinator epoch) of an end-of-transaction marker; (None, -1) of any other."""
    at = 0
    _, at = _varint(records, at)
    at += 1
    _, at = _varint(records, at)
    _, at = _varint(records, at)
    key_size, at = _varint(records, at)
    key = records[at : at + key_size]
    at += key_size
    value_size, at = _varint(records, at)
    value = records[at : at + value_size]
    kind = int.from_bytes(key[2:4], "big")
    if kind not in (0, 1):
        return None, -1
    return kind, int.from_bytes(value[2:6], "big", signed=True)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def batches_of(data: bytes) -> Iterator[Batch]:
    """All batches of a `.log`; AssertionError at the first byte that is not part of a sound one."""
    position = 0
    while position < len(data):
        assert position + HEADER.size <= len(data), f"{len(data) - position} bytes after the last batch"
        base, length, epoch, magic, crc, attributes, delta, _, max_timestamp, pid, pepoch, sequence, count = (
            HEADER.unpack_from(data, position)
        )
        size = length + 12
        assert magic == 2, f"magic {magic} at {position}"
        assert HEADER.size <= size <= len(data) - position, f"batch of {size} bytes at {position}"
        assert crc32c(data[position + 21 : position + size]) == crc, f"CRC at {position}"
        records = data[position + HEADER.size : position + size]
        yield Batch(
            base,
            base + delta,
            position,
            size,
            epoch,
            attributes,
            max_timestamp,
            pid,
            pepoch,
            sequence,
            delta,
            count,
            records,
        )
        position += size


def check_folder(
    files: Mapping[str, bytes], complete: bool = True, from_the_start: bool = True, log_start: int = 0
) -> list[Batch]:
    """Raises AssertionError where a cleanly closed folder is not as it must be; returns its batches.

    `complete`: the indexes were closed, so they end with their last entry. `from_the_start`: nothing was removed from
    the front, so that producer state can be worked out. Epochs are known from `log_start` on.
    """
    bases = sorted(int(name[:20]) for name in files if name.endswith(".log"))
    assert bases, "no segment"
    found: list[Batch] = []
    replay = Replay()
    states: dict[int, dict[int, Producer]] = {}
    next_offset = bases[0]
    for index, base in enumerate(bases):
        stem = f"{base:020}"
        states[base] = _copied(replay)
        known_aborts = len(replay.aborted)
        batches = list(batches_of(files[stem + ".log"]))
        for batch in batches:
            assert batch.base_offset >= max(base, next_offset), f"{stem}: {batch.base_offset} after {next_offset}"
            assert 0 <= batch.last_offset - base <= 0x7FFFFFFF
            next_offset = batch.last_offset + 1
            replay.add(batch)
            states[next_offset] = _copied(replay)
        if index + 1 < len(bases):
            assert next_offset <= bases[index + 1], f"{stem} reaches into the next segment"
        _check_offset_index(stem, files.get(stem + ".index", b""), base, batches, complete)
        _check_time_index(stem, files.get(stem + ".timeindex", b""), base, batches, complete)
        if from_the_start:
            _check_aborted(stem, files.get(stem + ".txnindex", b""), replay.aborted[known_aborts:])
        found += batches
    if from_the_start:
        for name, data in files.items():
            if name.endswith(".snapshot"):
                _check_snapshot(name, data, states, next_offset)
    if "leader-epoch-checkpoint" in files:
        _check_epochs(files["leader-epoch-checkpoint"], found, next_offset, log_start)
    return found


def _copied(replay: Replay) -> dict[int, Producer]:
    return {
        pid: Producer(**{name: getattr(each, name) for name in each.__dict__}) for pid, each in replay.producers.items()
    }


def _entries(data: bytes, layout: str, complete: bool) -> list[tuple[int, ...]]:
    entry = struct.Struct(layout)
    if complete:
        assert len(data) % entry.size == 0, f"{len(data)} bytes are no whole number of entries"
    whole = len(data) // entry.size * entry.size
    found = list(entry.iter_unpack(data[:whole]))
    if not complete:
        while found and not any(found[-1]):
            found.pop()
    return found


def _check_offset_index(stem: str, data: bytes, base: int, batches: list[Batch], complete: bool) -> None:
    by_position = {batch.position: batch for batch in batches}
    last = -1
    for relative, position in _entries(data, ">ii", complete):
        assert relative > last, f"{stem}.index: {relative} after {last}"
        assert position in by_position, f"{stem}.index: no batch at {position}"
        assert by_position[position].last_offset == base + relative, f"{stem}.index: {relative} at {position}"
        last = relative


def _check_time_index(stem: str, data: bytes, base: int, batches: list[Batch], complete: bool) -> None:
    by_last = {batch.last_offset: batch for batch in batches}
    last_timestamp, last_relative = -1, -1
    for timestamp, relative in _entries(data, ">qi", complete):
        assert timestamp > last_timestamp, f"{stem}.timeindex: {timestamp} after {last_timestamp}"
        assert relative > last_relative, f"{stem}.timeindex: {relative} after {last_relative}"
        batch = by_last.get(base + relative)
        assert batch is not None, f"{stem}.timeindex: no batch ends at {base + relative}"
        assert batch.max_timestamp == timestamp, f"{stem}.timeindex: {timestamp} at {relative}"
        earlier = [each.max_timestamp for each in batches if each.last_offset <= base + relative]
        assert max(earlier) == timestamp, f"{stem}.timeindex: {timestamp} is not the largest up to {relative}"
        last_timestamp, last_relative = timestamp, relative
    if complete and batches and max(each.max_timestamp for each in batches) >= 0:
        assert last_timestamp == max(each.max_timestamp for each in batches), f"{stem}.timeindex lacks its last entry"


def _check_aborted(stem: str, data: bytes, aborted: list[tuple[int, int, int, int]]) -> None:
    found = list(ABORTED.iter_unpack(data))
    assert all(entry[0] == 0 for entry in found)
    assert [entry[1:] for entry in found] == aborted, f"{stem}.txnindex"


def _check_snapshot(name: str, data: bytes, states: Mapping[int, dict[int, Producer]], log_end: int) -> None:
    offset = int(name[:20])
    assert offset <= log_end, f"{name} is past the log end {log_end}"
    version, crc, count = struct.unpack_from(">hIi", data)
    assert version == 1
    assert crc32c(data[6:]) == crc, f"{name}: CRC"
    assert len(data) == 10 + PRODUCER.size * count, f"{name}: {len(data)} bytes for {count} producers"
    found = {entry[0]: Producer(*entry[1:]) for entry in PRODUCER.iter_unpack(data[10:])}
    at = max(each for each in states if each <= offset)
    assert found == states[at], f"{name}: {found} where the log says {states[at]}"


def _check_epochs(data: bytes, batches: list[Batch], log_end: int, log_start: int) -> None:
    lines = data.decode().splitlines()
    assert lines[0] == "0"
    assert int(lines[1]) == len(lines) - 2
    entries = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines[2:])]
    for (epoch, start), (next_epoch, next_start) in itertools.pairwise(entries):
        assert epoch < next_epoch, entries
        assert start < next_start, entries
    assert not entries or entries[-1][1] <= log_end, f"{entries} past the log end {log_end}"
    for batch in batches:
        if batch.leader_epoch >= 0 and batch.base_offset >= log_start:
            covering = [epoch for epoch, start in entries if start <= batch.base_offset]
            assert covering, f"no epoch for offset {batch.base_offset} in {entries}"
            assert covering[-1] == batch.leader_epoch, f"{batch.base_offset} has {batch.leader_epoch}: {entries}"
