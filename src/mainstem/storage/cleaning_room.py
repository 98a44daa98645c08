"""Whether a file system has room for the copy that a cleaning makes, asked before it is made: a write that finds the
disk full takes the whole directory offline (D5), and the next start would begin the same copy again.

- A group of segments is copied before it goes, and goes `file.delete.delay.ms` after that. What it takes itself bounds
  its copy. So each group is asked for when its turn comes: by then the file system says what the copies of those before
  it have left, and whether their old files are gone.
- Where there is no room the cleaning ends there, and the next one begins when there is room for what this one has
  copied already and the group that it came to, or after `AGAIN_MS`, because what it would take may be less by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.storage.fs import FileSystem
from mainstem.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from mainstem.storage.segment import Segment
from mainstem.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

AGAIN_MS: Final = 600_000
SPARE_BYTES: Final = 1 << 20
"""What is left to others, and what a file takes of a file system beside its bytes."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Why a cleaning was put off."""

    needed_bytes: int
    """What it would take to clean up to and with the group that did not fit, all of it copied anew."""
    usable_bytes: int
    since_ms: int

    def still(self, fs: FileSystem, directory: str, now_ms: int) -> bool:
        """Whether there is no sense in trying again. A clock that was set back makes nobody wait longer."""
        if not 0 <= now_ms - self.since_ms < AGAIN_MS:
            return False
        usable = usable_bytes(fs, directory)
        return usable is not None and usable < self.needed_bytes


def find_no_room(
    fs: FileSystem, directory: str, group: Sequence[Segment], copied_bytes: int, now_ms: int
) -> NoRoom | None:
    """None where the copy of `group` fits. `copied_bytes` is what this cleaning has put in place so far."""
    usable = usable_bytes(fs, directory)
    needed = sum(bytes_of(fs, segment) for segment in group) + SPARE_BYTES
    return None if usable is None or needed <= usable else NoRoom(copied_bytes + needed, usable, now_ms)


def usable_bytes(fs: FileSystem, directory: str) -> int | None:
    """None where the file system does not tell, as some do that are elsewhere. A disk that fails says so when it is
    written to."""
    try:
        return fs.usable_bytes(directory) if fs.total_bytes(directory) > 0 else None
    except OSError:
        return None


def bytes_of(fs: FileSystem, segment: Segment) -> int:
    """Of a segment whose indexes were looked at."""
    size = segment.size + segment.offset_index.entries * OFFSET_ENTRY_BYTES
    size += segment.time_index.entries * TIME_ENTRY_BYTES
    return size + (fs.file_size(segment.txn_index.ref.path) if segment.txn_index.exists else 0)
