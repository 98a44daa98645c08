"""`leader-epoch-checkpoint`: a version line `0`, the number of entries, then `epoch start-offset` a line."""

from typing import Final

from mainstem.core.log.epochs import EpochEntry, LeaderEpochs
from mainstem.storage.checkpoint import (
    MalformedFileError,
    checkpoint_lines,
    checkpoint_number,
    read_file,
    replace_file,
    write_file_durably,
)
from mainstem.storage.fs import FileSystem

VERSION: Final = 0


def read_leader_epochs(fs: FileSystem, path: str) -> LeaderEpochs:
    """The epochs in the file; none where there is no file. MalformedFileError for anything but the format."""
    entries: list[EpochEntry] = []
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        data = b""
    line_number = 2
    for line in checkpoint_lines(path, data, VERSION):
        line_number += 1
        fields = line.split(" ")
        if len(fields) != 2:
            raise MalformedFileError(path, f"line {line_number}: {line[:80]!r} is not `epoch start-offset`")
        epoch = checkpoint_number(path, fields[0], line_number)
        entries.append(EpochEntry(epoch, checkpoint_number(path, fields[1], line_number)))
    return LeaderEpochs(entries)


def format_leader_epochs(epochs: LeaderEpochs) -> bytes:
    entries = epochs.entries()
    lines = [str(VERSION), str(len(entries))]
    lines += [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    lines.append("")
    return "\n".join(lines).encode()


def write_leader_epochs(fs: FileSystem, path: str, data: bytes) -> None:
    write_file_durably(fs, path, data)


def create_leader_epochs(fs: FileSystem, path: str, epoch: int) -> None:
    """Writes the epoch that an empty log begins with. The caller syncs the new folder."""
    replace_file(fs, path, format_leader_epochs(LeaderEpochs([EpochEntry(epoch, 0)])))
