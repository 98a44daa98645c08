"""`partition.metadata`: the id of the topic a partition's folder belongs to (KIP-516).

It tells a topic from a later one of the same name (KAFKA-12257): the folder's name cannot. Kafka writes it when the
partition is created, and only once.
"""

import re
from typing import Final

from mainstem.protocol.primitives import ZERO_UUID
from mainstem.protocol.uuids import uuid_from_text, uuid_to_text
from mainstem.storage.checkpoint import MalformedFileError, read_file, write_file_durably
from mainstem.storage.fs import FileSystem

NAME: Final = "partition.metadata"
VERSION: Final = 0

_LINE: Final = re.compile(r"\s*(\S+?)\s*:\s*(\S+)\s*")


def read_topic_id(fs: FileSystem, folder: str) -> bytes | None:
    """None where the file is missing."""
    path = f"{folder}/{NAME}"
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return None
    return parse_topic_id(path, data)


def write_topic_id(fs: FileSystem, folder: str, topic_id: bytes) -> None:
    write_file_durably(fs, f"{folder}/{NAME}", format_topic_id(topic_id))


def format_topic_id(topic_id: bytes) -> bytes:
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_topic_id(path: str, data: bytes) -> bytes:
    fields: list[tuple[str, str]] = []
    for line in data.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise MalformedFileError(path, f"{line[:80]!r} is not `name: value`")
        fields.append((match[1], match[2]))
    names = [name for name, _ in fields]
    if names != ["version", "topic_id"]:
        raise MalformedFileError(path, f"{names} where `version` and `topic_id` should be")
    if fields[0][1] != str(VERSION):
        raise MalformedFileError(path, f"version {fields[0][1]!r}; {VERSION} is the only one known")
    try:
        topic_id = uuid_from_text(fields[1][1])
    except ValueError as error:
        raise MalformedFileError(path, f"topic_id: {error}") from error
    if topic_id == ZERO_UUID:
        raise MalformedFileError(path, "the topic id is zero")
    return topic_id
