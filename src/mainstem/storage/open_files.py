"""Open files, bounded: handles are opened when used and closed when others need the room.

Ten thousand partitions have thirty thousand files, more than a process may hold open. Each file of a log is a
`FileRef`; `pin` opens it if need be and keeps it open until `unpin`, so that a reader (a `sendfile` under way, a
lookup or an fsync in a thread) never has its file closed under it.

Rules:
- Only the owner of the event loop pins and unpins; threads use files that were pinned for them.
- When there are more open files than `capacity`, those without a pin go, the ones not used lately first and those
  with unsynced writes last: the kernel reports a failed write-back to a handle that was open when it happened.
- A file that is discarded (deleted, replaced) is closed with its last pin.
"""

import errno

from mypy_extensions import i64

from mainstem.storage.fs import File, FileSystem


def is_out_of_files(error: OSError) -> bool:
    """Whether the process, or the system, has as many files open as it may: that is nothing the disk has done."""
    return error.errno == errno.EMFILE or error.errno == errno.ENFILE


class FileRef:
    """One file that can be opened at any time. `version` counts writes, `synced_version` those known durable."""

    __slots__ = ("_discarded", "_file", "_pins", "_recent", "_table", "path", "synced_version", "version")

    def __init__(self, table: "OpenFiles", path: str) -> None:
        self.path = path
        self.version: i64 = 0
        self.synced_version: i64 = 0
        self._table = table
        self._file: File | None = None
        self._pins: i64 = 0
        self._recent = False
        self._discarded = False

    @property
    def dirty(self) -> bool:
        """Whether bytes were written that no fsync has covered."""
        return self.version != self.synced_version

    @property
    def pins(self) -> i64:
        return self._pins

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def pin(self, create: bool = False) -> File:
        file = self._file
        if file is None:
            file = self._table.open(self, create)
            self._file = file
            self._discarded = False
        self._pins += 1
        self._recent = True
        return file

    def unpin(self) -> None:
        assert self._pins > 0, f"{self.path} unpinned more often than pinned"
        self._pins -= 1
        if self._discarded and self._pins == 0:
            self._close()

    def rename(self, fs: FileSystem, path: str) -> None:
        fs.rename(self.path, path)
        self.path = path

    def relocate(self, path: str) -> None:
        """The file has another path, by a rename of its folder; it is opened there when it is next used."""
        self.discard()
        self.path = path

    def discard(self) -> None:
        """Closes the file with its last pin, or now. A later `pin` would open it again."""
        self._discarded = True
        if self._pins == 0:
            self._close()

    def may_close(self, spare_recent: bool, spare_dirty: bool) -> bool:
        """Whether the table may take this handle; the first pass only takes away the mark of recent use."""
        if self._pins > 0:
            return False
        if spare_recent and self._recent:
            self._recent = False
            return False
        return not (spare_dirty and self.dirty)

    def close_handle(self) -> None:
        file = self._file
        if file is not None:
            self._file = None
            file.close()

    def _close(self) -> None:
        if self._file is not None:
            self._table.forget(self)
            self.close_handle()


class OpenFiles:
    """All open files of a broker's logs. `capacity` comes from RLIMIT_NOFILE, less what sockets have (`resize`)."""

    __slots__ = ("_open", "capacity", "fs")

    def __init__(self, fs: FileSystem, capacity: i64) -> None:
        assert capacity > 0
        self.fs = fs
        self.capacity: i64 = capacity
        self._open: dict[FileRef, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ref(self, path: str) -> FileRef:
        return FileRef(self, path)

    def resize(self, capacity: i64) -> None:
        """Others need descriptors too, or have given some back."""
        assert capacity > 0
        self.capacity = capacity
        if len(self._open) > capacity:
            self._make_room()

    def open(self, ref: FileRef, create: bool) -> File:
        if len(self._open) >= self.capacity:
            self._make_room()
        try:
            file = self.fs.open(ref.path, create)
        except OSError as error:
            if not is_out_of_files(error):
                raise
            # Someone else has more than was left to them. That is no failure of the disk, as long as there is a remedy.
            self._close(1 + len(self._open) // 8)
            file = self.fs.open(ref.path, create)
        self._open[ref] = None
        return file

    def forget(self, ref: FileRef) -> None:
        self._open.pop(ref, None)

    def _make_room(self) -> None:
        """Closes an eighth of the handles, so that the search for them is paid for once in many opens."""
        self._close(len(self._open) - self.capacity + 1 + self.capacity // 8)

    def _close(self, wanted: i64) -> None:
        for spare_recent, spare_dirty in ((True, True), (False, True), (False, False)):
            for ref in list(self._open):
                if wanted <= 0:
                    return
                if ref.may_close(spare_recent, spare_dirty):
                    del self._open[ref]
                    ref.close_handle()
                    wanted -= 1
