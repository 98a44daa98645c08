"""The map of newest offsets: right, bounded, and full when it says so."""

import pytest

from mainstem.storage.cleaning_map import ENTRY_BYTES, CleaningMap


def made(memory_bytes: int = 1 << 20, keys_max: int = 1 << 40) -> CleaningMap:
    keys = CleaningMap(memory_bytes, keys_max)
    while keys.allocate():
        pass
    return keys


def test_the_newest_offset_of_each_key_is_found() -> None:
    keys = made()
    names = [b"key-%d" % number for number in range(5000)]
    for offset, name in enumerate(names * 3):
        keys.put(name, offset)
    assert keys.size == 5000
    assert [keys.get(name) for name in names] == list(range(10_000, 15_000))
    assert keys.get(b"another") == -1


@pytest.mark.parametrize("key", [b"", b"\x00", b"k" * 100_000])
def test_any_bytes_are_a_key(key: bytes) -> None:
    keys = made(1000)
    keys.put(key, 0)
    assert keys.get(key) == 0
    assert keys.get(key + b"x") == -1


@pytest.mark.parametrize("slots", [2, 3, 10, 8192, 8193, 20_000])
def test_it_holds_nine_tenths_of_its_slots_and_finds_them_all(slots: int) -> None:
    keys = made(slots * ENTRY_BYTES)
    assert keys.slots == slots
    count = 0
    while not keys.is_full:
        keys.put(b"%d" % count, count)
        count += 1
    assert count == keys.capacity == max(1, int(slots * 0.9))
    assert all(keys.get(b"%d" % number) == number for number in range(count))
    assert keys.get(b"missing") == -1


def test_it_takes_no_more_memory_than_the_keys_can_need() -> None:
    keys = made(128 << 20, keys_max=90)
    assert keys.slots < 110
    assert keys.capacity >= 90
