"""The file interface on Linux, one system call a method."""

import errno
import fcntl
import os
from collections.abc import Sequence

from mypy_extensions import i64

from mainstem.storage.fs import File, FileSystem, Lock

_IOV_MAX = 1024


class PosixFile(File):
    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read_at(self, position: i64, size: i64) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        # A read may stop short of the end of the file (2 GB limit, a signal): go on until it really ends.
        parts = [data]
        got: i64 = len(data)
        while got < size:
            data = os.pread(self._descriptor, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_cached(self, position: i64, size: i64) -> bytes | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a file system without RWF_NOWAIT (tmpfs is in memory anyway)
                return self.read_at(position, size)
            raise
        if got < size and position + got < self.size():
            return None
        return bytes(memoryview(buffer)[:got]) if got < size else bytes(buffer)

    def write_at(self, position: i64, buffers: Sequence[bytes | memoryview]) -> None:
        try:
            self._write_at(position, buffers)
        except OSError as error:
            # The kernel says that the disk is full, not who wanted more of it.
            error.filename = self.path
            raise

    def _write_at(self, position: i64, buffers: Sequence[bytes | memoryview]) -> None:
        wanted: i64 = 0
        for buffer in buffers:
            wanted += len(buffer)
        if len(buffers) <= _IOV_MAX:
            written = os.pwritev(self._descriptor, buffers, position)
            if written == wanted:
                return
        else:
            written = 0
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            written = os.pwrite(self._descriptor, rest, position + wanted - len(rest))
            if written == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            rest = rest[written:]

    def size(self) -> i64:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: i64) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def descriptor(self) -> int:
        return self._descriptor


_locked_here: set[tuple[int, int]] = set()
"""Device and inode of every file that this process has locked. The kernel's lock belongs to the process: it would let
the same process take it twice, and would drop it when any descriptor of that file is closed. So a file that is locked
here is not even opened again."""


class PosixLock(Lock):
    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._identity = identity

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _locked_here.discard(self._identity)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class PosixFileSystem(FileSystem):
    """With `read_only`, files are opened for reading only: those of others, who may not let us write."""

    def __init__(self, read_only: bool = False) -> None:
        self._flags: i64 = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)

    def open(self, path: str, create: bool = False) -> File:
        flags: i64 = self._flags | (os.O_CREAT if create else 0)
        return PosixFile(path, os.open(path, flags, 0o644))

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> i64:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> i64:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        if os.path.exists(path) and _identity(os.stat(path)) in _locked_here:
            raise BlockingIOError(f"{path} is held by this process")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # fcntl's kind of lock, because that is the kind Kafka takes: the two must exclude each other.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(f"{path} is held by another process") from error
            raise
        identity = _identity(os.fstat(descriptor))
        _locked_here.add(identity)
        return PosixLock(descriptor, identity)

    def usable_bytes(self, path: str) -> i64:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> i64:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize
