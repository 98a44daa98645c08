"""Open files: bounded, and never closed under a reader."""

import errno

import pytest

from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.open_files import FileRef, OpenFiles
from tests.support.logs import new_disk


def make_refs(count: int, capacity: int) -> tuple[OpenFiles, list[FileRef]]:
    disk = new_disk()
    disk.make_directory("/d")
    files = OpenFiles(disk, capacity)
    refs = [files.ref(f"/d/{number}") for number in range(count)]
    for ref in refs:
        ref.pin(create=True)
        ref.unpin()
    return files, refs


def test_no_more_are_open_than_there_is_room_for() -> None:
    files, refs = make_refs(50, 10)
    assert len(files) <= 10
    for ref in refs:
        ref.pin()
        ref.unpin()
        assert len(files) <= 10


def test_a_pinned_file_stays_open() -> None:
    files, refs = make_refs(30, 10)
    pinned = refs[0].pin()
    for ref in refs[1:]:
        ref.pin()
        ref.unpin()
    assert refs[0].is_open
    assert refs[0].pin() is pinned
    assert len(files) <= 10


def test_all_pinned_means_more_than_the_bound_rather_than_a_failure() -> None:
    files, refs = make_refs(12, 10)
    for ref in refs:
        ref.pin()
    assert len(files) == 12


def test_files_with_unsynced_writes_are_closed_last() -> None:
    disk = new_disk()
    disk.make_directory("/d")
    files = OpenFiles(disk, 8)
    others = [files.ref(f"/d/{number}") for number in range(40)]
    others[0].version = 1
    for ref in others:
        ref.pin(create=True)
        ref.unpin()
    assert others[0].is_open
    assert others[0].dirty


def test_files_are_closed_where_others_need_their_descriptors() -> None:
    files, refs = make_refs(10, 10)
    pinned = [ref for ref in refs[:2] if ref.pin()]
    files.resize(4)
    assert len(files) <= 4
    assert all(ref.is_open for ref in pinned)
    files.resize(10)
    for ref in refs:
        ref.pin()
    assert len(files) == 10


def test_a_process_that_may_open_no_more_closes_a_file_that_is_idle() -> None:
    files, refs = make_refs(10, 100)
    disk = files.fs
    assert isinstance(disk, SimDisk)
    disk.faults.append(Fault(Effect.FAIL, "open", "/d", errno.EMFILE))
    another = files.ref("/d/another")
    another.pin(create=True)
    assert another.is_open
    assert len([ref for ref in refs if ref.is_open]) == 8
    disk.faults.append(Fault(Effect.FAIL, "open", "/d", errno.EMFILE, times=2))
    with pytest.raises(OSError, match="failure of open"):
        files.ref("/d/and another").pin(create=True)


def test_a_discarded_file_closes_with_its_last_pin() -> None:
    files, refs = make_refs(1, 10)
    refs[0].pin()
    refs[0].pin()
    refs[0].discard()
    refs[0].unpin()
    assert refs[0].is_open
    refs[0].unpin()
    assert not refs[0].is_open
    assert len(files) == 0


def test_unpinning_too_often_is_our_mistake() -> None:
    _, refs = make_refs(1, 10)
    with pytest.raises(AssertionError, match="unpinned"):
        refs[0].unpin()
