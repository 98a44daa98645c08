"""Kafka's checkpoint files: one offset a partition for a whole log directory, and the durable way to replace a file.

Text: a version line `0`, the number of entries, then `topic partition offset` a line. Rules:

- A file is old or new, never mixed (D7): written under `<name>.tmp`, synced, renamed, the directory synced
  (KAFKA-3968, KAFKA-9892, KAFKA-16541).
- A missing file, and an empty one as Kafka creates it at its first start, hold no entries.
- Anything else that is not exactly the format is an OSError that names the file and the line. Kafka takes broken
  recovery points for none; we do not by ourselves, because below a recovery point nothing may ever be cut (D4).
"""

import errno
from collections.abc import Mapping
from typing import Final

from mainstem.storage.fs import FileSystem

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

VERSION: Final = 0
TEMPORARY_SUFFIX: Final = ".tmp"

TopicPartition = tuple[str, int]


class MalformedFileError(OSError):
    """A file that is there and readable, but is not what it should be."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.EINVAL, what, path)


def read_file(fs: FileSystem, path: str) -> bytes:
    """All of a small file; FileNotFoundError where there is none."""
    file = fs.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def write_file_durably(fs: FileSystem, path: str, data: bytes) -> None:
    """Replaces the file at `path`: after this returns it is `data`, after a crash before it is the old or the new."""
    replace_file(fs, path, data)
    fs.sync_directory(parent_of(path))


def replace_file(fs: FileSystem, path: str, data: bytes) -> None:
    """The same, but that the old may come back until the folder is synced."""
    temporary = path + TEMPORARY_SUFFIX
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)


def parent_of(path: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return folder or slash or "."


def checkpoint_lines(path: str, data: bytes, version: int) -> list[str]:
    """The entry lines of any of Kafka's checkpoint files, after its version and its count have been checked."""
    if not data:
        return []
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFileError(path, "not UTF-8") from error
    if not text.endswith("\n"):
        raise MalformedFileError(path, "the last line does not end")
    lines = text[:-1].split("\n")
    if checkpoint_number(path, lines[0], 1) != version:
        raise MalformedFileError(path, f"version {lines[0]!r}; {version} is the only one known")
    if len(lines) < 2:
        raise MalformedFileError(path, "the number of entries is missing")
    if checkpoint_number(path, lines[1], 2) != len(lines) - 2:
        raise MalformedFileError(path, f"{lines[1]} entries announced, {len(lines) - 2} found")
    return lines[2:]


def checkpoint_number(path: str, text: str, line: int) -> int:
    """A decimal number of 0 or more that fits 63 bits."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise MalformedFileError(path, f"line {line}: {text[:40]!r} is not a number of 0 or more")
    value = int(text)
    if value > 0x7FFFFFFFFFFFFFFF:
        raise MalformedFileError(path, f"line {line}: {text} does not fit 64 bits")
    return value


def parse_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    line_number: int = 2
    for line in checkpoint_lines(path, data, VERSION):
        line_number += 1
        fields = line.split(" ")
        if len(fields) != 3 or not fields[0]:
            raise MalformedFileError(path, f"line {line_number}: {line[:80]!r} is not `topic partition offset`")
        key = (fields[0], checkpoint_number(path, fields[1], line_number))
        if key in offsets:
            raise MalformedFileError(path, f"line {line_number}: {fields[0]} {fields[1]} is there twice")
        offsets[key] = checkpoint_number(path, fields[2], line_number)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    for (topic, partition), offset in offsets.items():
        lines.append(f"{topic} {partition} {offset}")
    lines.append("")
    return "\n".join(lines).encode()


class OffsetCheckpoint:
    """One of the checkpoint files of one log directory."""

    def __init__(self, fs: FileSystem, folder: str, name: str) -> None:
        self._fs = fs
        self.path: Final = f"{folder}/{name}"

    def read(self) -> dict[TopicPartition, int]:
        try:
            data = read_file(self._fs, self.path)
        except FileNotFoundError:
            return {}
        return parse_offsets(self.path, data)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably replaces all entries. Blocks."""
        write_file_durably(self._fs, self.path, format_offsets(offsets))
