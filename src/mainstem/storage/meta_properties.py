"""`meta.properties`: whose log directory this is. Written when it is formatted, checked at every start.

Version 1 of Kafka's file, in Java's properties format: cluster.id, node.id, directory.id (KIP-866, KIP-858). Kafka
also writes cluster ids that are not ids of 16 bytes (a user may choose any), so the cluster id stays text here.
A directory of another cluster or another node must never be opened: its offsets mean something else.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from mainstem.protocol.uuids import uuid_from_text, uuid_to_text
from mainstem.storage.checkpoint import MalformedFileError, read_file, write_file_durably
from mainstem.storage.fs import FileSystem
from mainstem.storage.properties import escape_value, parse_properties

NAME = "meta.properties"
VERSION = 1


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: bytes


def read_meta_properties(fs: FileSystem, folder: str) -> MetaProperties | None:
    """None where the directory was never formatted."""
    path = f"{folder}/{NAME}"
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return None
    return parse_meta_properties(path, data)


def write_meta_properties(fs: FileSystem, folder: str, meta: MetaProperties, now_ms: int) -> None:
    write_file_durably(fs, f"{folder}/{NAME}", format_meta_properties(meta, now_ms))


def format_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    written = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = [
        "#",
        f"#{written}",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_to_text(meta.directory_id)}",
        f"version={VERSION}",
        f"cluster.id={escape_value(meta.cluster_id)}",
        "",
    ]
    return "\n".join(lines).encode("latin-1")


def parse_meta_properties(path: str, data: bytes) -> MetaProperties:
    found = parse_properties(data.decode("latin-1"))

    def field(key: str) -> str:
        if key not in found:
            raise MalformedFileError(path, f"{key} is missing")
        return found[key]

    if field("version") != str(VERSION):
        raise MalformedFileError(path, f"version {found['version']!r}; {VERSION} is the only one supported")
    node_id = field("node.id")
    if not (node_id.isascii() and node_id.isdigit()) or int(node_id) > 0x7FFFFFFF:
        raise MalformedFileError(path, f"node.id {node_id!r} is not a node id")
    if not field("cluster.id"):
        raise MalformedFileError(path, "cluster.id is empty")
    try:
        directory_id = uuid_from_text(field("directory.id"))
    except ValueError as error:
        raise MalformedFileError(path, f"directory.id: {error}") from error
    return MetaProperties(found["cluster.id"], int(node_id), directory_id)
