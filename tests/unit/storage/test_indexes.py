"""Offset, time and transaction indexes: Kafka's bytes, found by reading entries where they lie."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.storage.errors import StorageError, WouldBlock
from mainstem.storage.fs import File
from mainstem.storage.offset_index import OffsetIndex
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.time_index import TimeIndex
from mainstem.storage.txn_index import AbortedTransaction, TxnIndex
from tests.support.logs import new_disk

MAX_BYTES = 10 << 20


def new_files() -> OpenFiles:
    disk = new_disk()
    disk.make_directory("/d")
    return OpenFiles(disk, 10)


def offset_index(files: OpenFiles, entries: list[tuple[int, int]], base: int = 1000) -> OffsetIndex:
    index = OffsetIndex(files.ref("/d/i"), base, MAX_BYTES)
    index.create()
    for offset, position in entries:
        index.append(offset, position)
    return index


def contents(files: OpenFiles, path: str) -> bytes:
    file = files.fs.open(path)
    return file.read_at(0, file.size())


def test_offset_entries_are_kafkas() -> None:
    files = new_files()
    offset_index(files, [(1000 + 0x185A, 0x000AE797)])
    assert contents(files, "/d/i").hex() == "0000185a000ae797"


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 7), st.data())
def test_a_lookup_finds_the_last_entry_at_or_before(count: int, step: int, data: st.DataObject) -> None:
    files = new_files()
    index = OffsetIndex(files.ref("/d/i"), 1000, MAX_BYTES)
    file = index.ref.pin(create=True)
    entries = [(10 + n * step, 100 + n * 3) for n in range(count)]
    file.write_at(0, [b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)])
    index.load()
    assert index.entries == count
    for _ in range(10):
        target = data.draw(st.integers(0, 20 + count * step))
        expected = [position for offset, position in entries if offset <= target]
        assert index.lookup(file, 1000 + target, False) == (expected[-1] if expected else 0)
        position = data.draw(st.integers(0, 200 + count * 3))
        after = [offset for offset, found in entries if found >= position]
        assert index.offset_at_or_after(file, position, False) == (1000 + after[0] if after else -1)


def test_truncating_keeps_the_entries_before_the_offset() -> None:
    files = new_files()
    index = offset_index(files, [(1010, 1), (1020, 2), (1030, 3)])
    index.truncate_to(1020)
    assert (index.entries, index.last_offset, index.last_position) == (1, 1010, 1)
    index.truncate_to(1000)
    assert (index.entries, index.last_offset, index.last_position) == (0, 1000, 0)


def test_an_index_that_kafka_preallocated_is_read_up_to_its_zeros() -> None:
    files = new_files()
    index = offset_index(files, [(1010, 1), (1020, 2)])
    file = index.ref.pin()
    file.truncate(MAX_BYTES)
    again = OffsetIndex(index.ref, 1000, MAX_BYTES)
    again.load()
    assert (again.entries, again.last_offset) == (2, 1020)
    again.append(1030, 3)
    again.trim()
    assert file.size() == 24


def test_a_time_index_of_one_entry_at_timestamp_0_is_not_taken_for_zeros_that_kafka_preallocated() -> None:
    files = new_files()
    times = TimeIndex(files.ref("/d/t"), 1000, MAX_BYTES)
    times.create()
    times.append_if_later(0, 1000)
    file = times.ref.pin()
    again = TimeIndex(times.ref, 1000, MAX_BYTES)
    assert again.parse_last(again.read_last(file)) == (0, 1000)
    again.load()
    assert (again.entries, again.last_timestamp, again.last_offset) == (1, 0, 1000)
    again.trim()
    assert file.size() == 12
    file.truncate(MAX_BYTES)
    preallocated = TimeIndex(times.ref, 1000, MAX_BYTES)
    preallocated.load()
    assert preallocated.entries == 0, "which of the slots are entries the zeros cannot tell; a recovery builds it anew"


def test_an_offset_index_of_one_slot_of_zeros_has_no_entry() -> None:
    """No entry is for the first batch; Kafka preallocates a single slot where `segment.index.bytes` is 8 to 15."""
    files = new_files()
    index = offset_index(files, [])
    index.ref.pin().truncate(8)
    again = OffsetIndex(index.ref, 1000, 15)
    again.check(100)
    assert (again.entries, again.last_offset) == (0, 1000)


def test_an_index_is_full_at_segment_index_bytes() -> None:
    files = new_files()
    index = OffsetIndex(files.ref("/d/i"), 0, 20)
    index.create()
    index.append(1, 1)
    assert not index.is_full
    index.append(2, 2)
    assert index.is_full
    times = TimeIndex(files.ref("/d/t"), 0, 30)
    times.create()
    assert not times.is_full
    times.append_if_later(1, 0)
    assert times.is_full, "one entry stays free for the roll"


def test_an_index_that_points_outside_its_segment_is_refused() -> None:
    index = offset_index(new_files(), [(1010, 500)])
    index.check(501)
    with pytest.raises(StorageError):
        index.check(500)


def test_time_entries_are_kafkas_and_only_later_ones_are_added() -> None:
    files = new_files()
    index = TimeIndex(files.ref("/d/t"), 0, MAX_BYTES)
    index.create()
    index.append_if_later(0x1A1E14D4C2C, 0x185A)
    index.append_if_later(0x1A1E14D4C2C, 0x1860)
    index.append_if_later(0x1A1E14D4CCD, 0x1871)
    assert contents(files, "/d/t").hex() == "000001a1e14d4c2c0000185a" + "000001a1e14d4ccd00001871"
    file = index.ref.pin()
    lookups = {0: 0, 0x1A1E14D4C2C: 0x185A, 0x1A1E14D4CCC: 0x185A, 1 << 60: 0x1871}
    assert {time: index.lookup(file, time, False) for time in lookups} == lookups
    index.truncate_to(0x1871)
    assert (index.entries, index.last_offset) == (1, 0x185A)
    index.truncate_to(0)
    assert (index.entries, index.last_timestamp) == (0, -1)


def test_transaction_entries_are_kafkas() -> None:
    files = new_files()
    index = TxnIndex(files.ref("/d/x"), 0, files.fs, False)
    assert not files.fs.exists("/d/x")
    index.append(AbortedTransaction(1, 0x3AA3, 0x3AAD, 0x3AAE))
    assert contents(files, "/d/x").hex() == "0000" + "0" * 15 + "1" + "".join(
        f"{number:016x}" for number in (0x3AA3, 0x3AAD, 0x3AAE)
    )


def collect(index: TxnIndex, file: File, first: int, upper: int, found: list[AbortedTransaction]) -> bool:
    """Whether later segments have no more of them."""
    size = file.size()
    position = index.position_before(file, size, first, False)
    while 0 <= position < size:
        position = index.collect_from(file, position, size, first, upper, found, False)
    return position < 0


def test_aborted_transactions_are_found_by_overlap() -> None:
    files = new_files()
    index = TxnIndex(files.ref("/d/x"), 0, files.fs, False)
    for aborted in ((1, 0, 10, 5), (2, 5, 12, 13), (3, 20, 30, 31)):
        index.append(AbortedTransaction(*aborted))

    def producers(first: int, upper: int) -> list[int]:
        found: list[AbortedTransaction] = []
        file = index.ref.pin()
        collect(index, file, first, upper, found)
        index.ref.unpin()
        return [aborted.producer_id for aborted in found]

    assert producers(0, 40) == [1, 2, 3]
    assert producers(0, 5) == [1]
    assert producers(11, 13) == [2]
    assert producers(13, 20) == []
    assert producers(31, 99) == []
    index.truncate_to(12)
    assert [aborted.producer_id for aborted in index.entries()] == [1]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2000), st.integers(0, 4500), st.integers(1, 300))
def test_a_search_for_aborted_transactions_looks_only_where_they_can_be(count: int, first: int, span: int) -> None:
    """Whoever reads at the end of a log with very many of them must not pay for all of them, each time."""
    disk = new_disk()
    disk.make_directory("/d")
    files = OpenFiles(disk, 10)
    index = TxnIndex(files.ref("/d/x"), 0, disk, True)
    entries = [AbortedTransaction(n, max(2 * n - n % 7, 0), 2 * n + 1, 2 * n + 2 - n % 3 // 2) for n in range(count)]
    file = index.ref.pin(create=True)
    file.write_at(0, [b"".join(aborted.to_bytes() for aborted in entries)])
    read: list[int] = []
    disk.on_operation = lambda operation, path, position, size: read.append(size)
    found: list[AbortedTransaction] = []
    ended = collect(index, file, first, first + span, found)
    expected, over = [], False
    for aborted in entries:
        if not over and aborted.last_offset >= first and aborted.first_offset < first + span:
            expected.append(aborted.producer_id)
        over = over or aborted.last_stable_offset >= first + span
    assert [aborted.producer_id for aborted in found] == expected
    assert ended == over
    assert sum(read) < (256 + 256 + span) * 34 + 20 * 8


def test_a_torn_transaction_index_is_noticed() -> None:
    files = new_files()
    index = TxnIndex(files.ref("/d/x"), 0, files.fs, False)
    index.append(AbortedTransaction(1, 0, 1, 2))
    index.ref.pin().truncate(20)
    with pytest.raises(StorageError):
        index.entries()


@pytest.mark.parametrize("aborted", [(0, 0, 0, 0), (1, 90, 99, 100), (1, 106, 105, 107)])
def test_a_transaction_that_cannot_be_in_its_segment_is_told_to_nobody(aborted: tuple[int, int, int, int]) -> None:
    files = new_files()
    index = TxnIndex(files.ref("/d/x"), 100, files.fs, False)
    index.append(AbortedTransaction(1, 90, 100, 101))
    index.append(AbortedTransaction(*aborted))
    file = index.ref.pin()
    with pytest.raises(StorageError, match="cannot be in the segment at 100"):
        collect(index, file, 0, 200, [])


def test_a_lookup_that_would_block_says_so() -> None:
    disk = new_disk()
    disk.make_directory("/d")
    index = offset_index(OpenFiles(disk, 10), [(1010, 1)])
    disk.is_cold = lambda path, position, size: True
    file = index.ref.pin()
    with pytest.raises(WouldBlock):
        index.lookup(file, 1010, True)
    assert index.lookup(file, 1010, False) == 1
