"""The file interface: everything storage asks of an operating system, and nothing more.

`posix.py` implements it with system calls; the simulator implements it with a disk that loses, tears and reorders
what was not synced. Rules that hold for both:

- Reads and writes name their position; there is no file cursor.
- A write is visible to reads at once and durable only after `File.sync`; a name is durable only after
  `FileSystem.sync_directory` of its parent (KAFKA-3968).
- Every failure is an OSError. Callers never retry a failed write or sync (D5).
- `sync`, and reads of what is not in memory, may block: the event loop runs them in an executor.

Paths are `str`, absolute or relative to nothing but what the caller was configured with.
"""

from abc import abstractmethod
from collections.abc import Sequence

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class File:
    """An open file. Writers hold the only handle that writes; readers may share it."""

    path: str

    @abstractmethod
    def read_at(self, position: i64, size: i64) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends. May block."""

    @abstractmethod
    def read_cached(self, position: i64, size: i64) -> bytes | None:
        """Like `read_at`, but None instead of blocking where any of it is not in memory."""

    @abstractmethod
    def write_at(self, position: i64, buffers: Sequence[bytes | memoryview]) -> None:
        """Writes all of `buffers`, one after the other, from `position`. A short write is completed or raises."""

    @abstractmethod
    def size(self) -> i64: ...

    @abstractmethod
    def truncate(self, size: i64) -> None:
        """Cuts the file, or extends it with zeros."""

    @abstractmethod
    def sync(self) -> None:
        """Returns when all bytes written so far, and the size, survive power loss. Blocks."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def descriptor(self) -> int:
        """The kernel's file descriptor for `sendfile`, or -1 where there is none (the simulator)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FileSystem:
    @abstractmethod
    def open(self, path: str, create: bool = False) -> File:
        """Opens for reading and writing. `create` makes a missing file; without it that is FileNotFoundError."""

    @abstractmethod
    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def is_directory(self, path: str) -> bool: ...

    @abstractmethod
    def file_size(self, path: str) -> i64: ...

    @abstractmethod
    def modified_ms(self, path: str) -> i64: ...

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Makes one directory; FileExistsError where it is there."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Atomically, over whatever file was at `target`; also moves directories."""

    @abstractmethod
    def remove(self, path: str) -> None: ...

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Returns when the names in the directory survive power loss. Blocks."""

    @abstractmethod
    def lock(self, path: str) -> "Lock":
        """Takes an exclusive lock that dies with the process; BlockingIOError where another process holds it."""

    @abstractmethod
    def usable_bytes(self, path: str) -> i64: ...

    @abstractmethod
    def total_bytes(self, path: str) -> i64: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Lock:
    @abstractmethod
    def release(self) -> None: ...
