"""Reading the files of partitions that no log has opened: another broker's, a copy's, a running one's.

Nothing is written, locked or recovered, and files are opened for reading only. What a log would do when it opens is
done here as far as reading needs it: the last segment ends where its bytes stop being batches, indexes may be missing
or preallocated, and transactions that are open at the end are found from the newest snapshot on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from librt.strings import read_i32_be

from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.storage.checkpoint import read_file
from mainstem.storage.errors import StorageError
from mainstem.storage.names import LOG, OFFSET_INDEX, SNAPSHOT, TXN_INDEX, parse_offset_name
from mainstem.storage.partition_folder import FolderKind, parse_folder_name
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.snapshot import decode_snapshot
from mainstem.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from mainstem.storage.txn_index import AbortedTransaction

_INDEX_ENTRY_BYTES: Final = 8
CHUNK_BYTES: Final = 4 << 20
_FILES: Final = PosixFileSystem(read_only=True)


@dataclass(frozen=True, slots=True)
class Folder:
    """One partition's folder in a log directory."""

    topic: str
    partition: int
    path: str


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Bytes `start` to `end` of a segment file; both are where batches begin or the file ends."""

    path: str
    base_offset: int
    start: int
    end: int
    is_tail: bool
    """Whether the log's end is in it: only there may the bytes end in something that is no batch."""


def find_folders(path: str) -> list[Folder]:
    """The partitions in a log directory, or the one whose folder `path` is; none of those that wait for removal."""
    if not _FILES.is_directory(path):
        raise StorageError(path, "is no directory")
    own = _folder(path)
    candidates = [own]
    if own is None:
        inside = [f"{path.rstrip('/')}/{name}" for name in _FILES.list_directory(path)]
        candidates = [_folder(each) for each in inside if _FILES.is_directory(each)]
    return [found for found in candidates if found is not None]


def _folder(path: str) -> Folder | None:
    found = parse_folder_name(path.rstrip("/").rpartition("/")[2])
    if found is None or found.kind is not FolderKind.PARTITION:
        return None
    if not any(name.endswith(LOG) for name in _FILES.list_directory(path)):
        return None
    return Folder(found.topic, found.partition, path)


def segments(folder: str) -> list[SegmentPart]:
    """Its segments, oldest first, each whole."""
    bases = [offset for offset, extension in map(_named, _FILES.list_directory(folder)) if extension == LOG]
    found = []
    for base in bases:
        path = f"{folder}/{base:020}{LOG}"
        found.append(SegmentPart(path, base, 0, _FILES.file_size(path), base == bases[-1]))
    return found


def cut(part: SegmentPart, part_bytes: int) -> list[SegmentPart]:
    """Parts of about `part_bytes`, cut where the offset index says that a batch begins; whole where there is none."""
    if part.end - part.start <= part_bytes:
        return [part]
    cuts = [part.start]
    for position in _indexed_positions(part):
        if position - cuts[-1] >= part_bytes:
            cuts.append(position)
    bounds = [*cuts, part.end]
    return [
        SegmentPart(part.path, part.base_offset, start, end, part.is_tail and end == part.end)
        for start, end in pairwise(bounds)
    ]


def _indexed_positions(part: SegmentPart) -> Iterator[int]:
    try:
        data = read_file(_FILES, part.path.removesuffix(LOG) + OFFSET_INDEX)
    except FileNotFoundError:
        return
    last = 0
    for at in range(0, len(data) - _INDEX_ENTRY_BYTES + 1, _INDEX_ENTRY_BYTES):
        position = int(read_i32_be(data, at + 4))
        if position <= last or position >= part.end:
            return  # preallocated zeros, or entries of what was cut off
        last = position
        yield position


def read_batches(part: SegmentPart, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Its bytes in chunks of whole batches. StorageError where bytes in the middle of the log are no batch."""
    file = _FILES.open(part.path)
    try:
        at = part.start
        wanted = chunk_bytes
        while at < part.end:
            chunk = file.read_at(at, min(wanted, part.end - at))
            whole, needed = _whole_bytes(chunk)
            if whole:
                yield chunk if whole == len(chunk) else chunk[:whole]
                at += whole
                wanted = chunk_bytes
                continue
            if needed > len(chunk) and at + needed <= part.end:
                wanted = needed
                continue
            if part.is_tail:
                return
            raise StorageError(part.path, "no batch here", at)
    finally:
        file.close()


def _whole_bytes(chunk: bytes) -> tuple[int, int]:
    """How many bytes are whole batches, and how many the first one needs where none is whole (0: it is no batch)."""
    at = 0
    while at + HEADER_BYTES <= len(chunk):
        batch = BatchView(chunk, at)
        size = int(batch.size)
        if size < HEADER_BYTES or batch.magic != 2:
            return at, 0
        if at + size > len(chunk):
            return at, size
        at += size
    return at, HEADER_BYTES if at == 0 else 0


def aborted_transactions(folder: str) -> list[AbortedTransaction]:
    """All that the transaction indexes name, oldest first."""
    found: list[AbortedTransaction] = []
    for name in _FILES.list_directory(folder):
        if _named(name)[1] != TXN_INDEX:
            continue
        data = read_file(_FILES, f"{folder}/{name}")
        for at in range(0, len(data) - TXN_ENTRY_BYTES + 1, TXN_ENTRY_BYTES):
            fields = [
                int.from_bytes(data[at + start : at + start + 8], "big", signed=True) for start in (2, 10, 18, 26)
            ]
            found.append(AbortedTransaction(*fields))
    return found


def first_open_transaction(folder: str) -> int | None:
    """Where the oldest transaction begins that has no marker yet; None where all have ended."""
    parts = segments(folder)
    snapshot_offset, open_since = _newest_snapshot(folder)
    for nth, part in enumerate(parts):
        if nth + 1 < len(parts) and parts[nth + 1].base_offset <= snapshot_offset:
            continue
        for chunk in read_batches(part):
            at = 0
            while at < len(chunk):
                batch = BatchView(chunk, at)
                at += int(batch.size)
                if batch.base_offset < snapshot_offset or not batch.is_transactional:
                    continue
                if batch.is_control:
                    open_since.pop(int(batch.producer_id), None)
                else:
                    open_since.setdefault(int(batch.producer_id), int(batch.base_offset))
    return min(open_since.values(), default=None)


def _newest_snapshot(folder: str) -> tuple[int, dict[int, int]]:
    """The offset of the newest snapshot that can be read, and the transactions that were open then, by producer."""
    offsets = [offset for offset, extension in map(_named, _FILES.list_directory(folder)) if extension == SNAPSHOT]
    for offset in reversed(offsets):
        try:
            producers = decode_snapshot(read_file(_FILES, f"{folder}/{offset:020}{SNAPSHOT}"))
        except ValueError:
            continue
        return offset, {
            int(each.producer_id): int(each.txn_first_offset) for each in producers if each.txn_first_offset >= 0
        }
    return 0, {}


def _named(name: str) -> tuple[int, str]:
    return parse_offset_name(name) or (-1, "")
