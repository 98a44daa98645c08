"""The file interface on a real file system."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.storage.fs import File
from mainstem.storage.posix import PosixFile, PosixFileSystem

fs = PosixFileSystem()


def new_file(folder: Path, content: bytes = b"") -> File:
    file = fs.open(str(folder / "file"), create=True)
    file.write_at(0, [content])
    return file


def run_in_another_process(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


TRY_LOCK = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("taken")
except OSError:
    print("refused")
"""


def test_what_is_written_is_read_back_at_its_position(tmp_path: Path) -> None:
    file = new_file(tmp_path, b"0123456789")
    file.write_at(4, [b"ab", memoryview(b"xcdx")[1:3], b"ef"])
    assert file.read_at(0, 100) == b"0123abcdef"
    assert file.read_at(3, 3) == b"3ab"
    assert file.read_at(10, 5) == b""
    assert file.read_at(1000, 5) == b""
    assert file.size() == 10
    file.close()


def test_a_write_past_the_end_leaves_zeros_between(tmp_path: Path) -> None:
    file = new_file(tmp_path, b"ab")
    file.write_at(5, [b"c"])
    assert file.read_at(0, 10) == b"ab\0\0\0c"
    file.close()


def test_a_write_that_fails_names_the_file() -> None:
    full = fs.open("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        full.write_at(0, [b"a"])
    full.close()


def test_truncate_cuts_and_extends_with_zeros(tmp_path: Path) -> None:
    file = new_file(tmp_path, b"abcdef")
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    assert fs.file_size(file.path) == 4
    file.close()


def test_a_write_of_more_buffers_than_one_call_takes_is_whole(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    buffers = [bytes([n % 251]) * (n % 7) for n in range(3000)]
    file.write_at(11, buffers)
    assert file.read_at(11, 100_000) == b"".join(buffers)
    file.write_at(0, [])
    file.close()


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new_file(tmp_path)
    pwritev, pwrite = os.pwritev, os.pwrite
    calls: list[int] = []

    def short_writev(descriptor: int, buffers: list[bytes], position: int) -> int:
        calls.append(position)
        return pwritev(descriptor, [b"".join(buffers)[:3]], position)

    def short_write(descriptor: int, data: memoryview, position: int) -> int:
        calls.append(position)
        return pwrite(descriptor, data[:4], position)

    monkeypatch.setattr(os, "pwritev", short_writev)
    monkeypatch.setattr(os, "pwrite", short_write)
    file.write_at(10, [b"abcd", b"efgh", b"ij"])
    assert file.read_at(10, 100) == b"abcdefghij"
    assert calls == [10, 13, 17]
    file.close()


def test_a_file_that_takes_no_more_bytes_is_an_error_and_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(tmp_path)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes"):
        file.write_at(0, [b"abc"])
    file.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_raises() -> None:
    file = PosixFile("/dev/full", os.open("/dev/full", os.O_RDWR))
    with pytest.raises(OSError, match="No space left") as raised:
        file.write_at(0, [b"abc"])
    assert raised.value.errno == errno.ENOSPC
    file.close()


def test_a_cached_read_returns_what_is_in_memory(tmp_path: Path) -> None:
    file = new_file(tmp_path, b"abcdefgh")
    assert file.read_cached(2, 3) == b"cde"
    assert file.read_cached(6, 100) == b"gh"
    assert file.read_cached(8, 100) == b""
    assert file.read_cached(5000, 1) == b""
    file.close()


def drop_from_memory(file: File, position: int, size: int) -> None:
    """Ask the kernel to forget a range. It may keep some of it: what it drops is its own affair."""
    file.sync()
    os.posix_fadvise(file.descriptor(), position, size, os.POSIX_FADV_DONTNEED)


def test_a_cached_read_gives_everything_or_declines_whatever_is_in_memory(tmp_path: Path) -> None:
    size = 4 << 20
    content = os.urandom(size)
    file = new_file(tmp_path, content)
    for position in (0, size // 2, size - 4096):
        drop_from_memory(file, position, size - position)
        assert file.read_cached(0, size) in (None, content)
        assert file.read_at(0, size) == content
        assert file.read_cached(0, 4096) in (None, content[:4096])
    file.close()


def test_a_cached_read_declines_instead_of_waiting_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(tmp_path, b"abcdefgh")
    flags = []

    def nothing_in_memory(descriptor: int, buffers: list[bytearray], position: int, flag: int) -> int:
        flags.append(flag)
        raise BlockingIOError(errno.EAGAIN, "not in memory")

    def half_in_memory(descriptor: int, buffers: list[bytearray], position: int, flag: int) -> int:
        flags.append(flag)
        buffers[0][:4] = b"abcd"
        return 4

    monkeypatch.setattr(os, "preadv", nothing_in_memory)
    assert file.read_cached(0, 8) is None
    # With only the first half in memory it is still a refusal, never half an answer.
    monkeypatch.setattr(os, "preadv", half_in_memory)
    assert file.read_cached(0, 8) is None
    assert file.read_cached(0, 4) == b"abcd"
    assert flags == [os.RWF_NOWAIT] * 3
    file.close()


def test_a_lock_excludes_another_process_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = fs.lock(path)
    assert run_in_another_process(TRY_LOCK, path) == "refused"
    lock.release()
    assert run_in_another_process(TRY_LOCK, path) == "taken"
    lock.release()


def test_a_lock_excludes_the_same_process_and_survives_the_attempt(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = fs.lock(path)
    with pytest.raises(BlockingIOError, match="this process"):
        fs.lock(path)
    assert run_in_another_process(TRY_LOCK, path) == "refused"
    lock.release()
    fs.lock(path).release()


def test_a_lock_held_by_another_process_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    program = TRY_LOCK.replace("os.O_RDWR)", "os.O_RDWR | os.O_CREAT)") + "sys.stdout.flush(); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"taken\n"
    try:
        with pytest.raises(BlockingIOError, match="another process"):
            fs.lock(path)
    finally:
        holder.communicate(timeout=30)
    fs.lock(path).release()


def test_directories(tmp_path: Path) -> None:
    root = str(tmp_path)
    folder = f"{root}/topic-0"
    fs.make_directory(folder)
    with pytest.raises(FileExistsError):
        fs.make_directory(folder)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/none")
    for name in ("b", "a"):
        fs.open(f"{folder}/{name}", create=True).close()
    assert fs.list_directory(folder) == ["a", "b"]
    assert fs.is_directory(folder)
    assert not fs.is_directory(f"{folder}/a")
    fs.rename(f"{folder}/a", f"{folder}/b")
    assert fs.list_directory(folder) == ["b"]
    with pytest.raises(OSError, match="not empty"):
        fs.remove_directory(folder)
    fs.sync_directory(folder)
    fs.rename(folder, f"{root}/topic-0.x-delete")
    assert not fs.exists(folder)
    fs.remove(f"{root}/topic-0.x-delete/b")
    fs.remove_directory(f"{root}/topic-0.x-delete")
    assert fs.list_directory(root) == []
    assert 0 < fs.usable_bytes(root) <= fs.total_bytes(root)


def test_a_file_stays_readable_after_its_name_is_gone(tmp_path: Path) -> None:
    file = new_file(tmp_path, b"abc")
    fs.remove(file.path)
    assert file.read_at(0, 3) == b"abc"
    file.close()
    file.close()
    assert file.descriptor() == -1


def test_a_sync_asks_the_kernel_for_this_file_and_says_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else in the tests can tell: what was written is there after kill -9, synced or not."""
    file = new_file(tmp_path, b"0123456789")
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    file.sync()
    assert synced == [str(tmp_path / "file")]

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match=f"the disk is gone: '{tmp_path}/file'"):
        file.sync()
    file.close()


def test_the_sync_of_a_directory_asks_the_kernel_for_that_directory_and_says_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    fs.sync_directory(str(tmp_path))
    assert synced == [str(tmp_path)]

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        fs.sync_directory(str(tmp_path))
