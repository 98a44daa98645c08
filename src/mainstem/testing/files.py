"""Files that can be taken away from a broker all at once, as the kernel takes them when a process dies.

What was written stays written, as after kill -9: that much is in the kernel's hands. What was not is lost.
"""

from __future__ import annotations

from mainstem.storage.fs import File, FileSystem, Lock
from mainstem.storage.posix import PosixFileSystem

_PRUNE_FROM = 256


class MortalFileSystem(FileSystem):
    """A PosixFileSystem that remembers what is open."""

    def __init__(self) -> None:
        self._posix = PosixFileSystem()
        self._files: list[File] = []
        self._locks: list[Lock] = []
        self._prune_at = _PRUNE_FROM
        self._is_dead = False

    def die(self) -> None:
        """Closes everything. Nothing can be opened or changed by way of this any more."""
        self._is_dead = True
        for file in self._files:
            file.close()
        for lock in self._locks:
            lock.release()

    def _check(self) -> None:
        if self._is_dead:
            raise OSError("the broker that these files belonged to was killed")

    def open(self, path: str, create: bool = False) -> File:
        self._check()
        file = self._posix.open(path, create)
        self._files.append(file)
        if len(self._files) > self._prune_at:
            self._files = [each for each in self._files if each.descriptor() >= 0]
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._files))
        return file

    def lock(self, path: str) -> Lock:
        self._check()
        lock = self._posix.lock(path)
        self._locks.append(lock)
        return lock

    def list_directory(self, path: str) -> list[str]:
        return self._posix.list_directory(path)

    def exists(self, path: str) -> bool:
        return self._posix.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._posix.is_directory(path)

    def file_size(self, path: str) -> int:
        return self._posix.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._posix.modified_ms(path)

    def make_directory(self, path: str) -> None:
        self._check()
        self._posix.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._check()
        self._posix.rename(source, target)

    def remove(self, path: str) -> None:
        self._check()
        self._posix.remove(path)

    def remove_directory(self, path: str) -> None:
        self._check()
        self._posix.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self._check()
        self._posix.sync_directory(path)

    def usable_bytes(self, path: str) -> int:
        return self._posix.usable_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._posix.total_bytes(path)
