"""`meta.properties`: whose log directory this is. Written when it is formatted, checked at every start.

Version 1 of Kafka's file, in Java's properties format: cluster.id, node.id, directory.id (KIP-866, KIP-858). Kafka
also writes cluster ids that are not ids of 16 bytes (a user may choose any), so the cluster id stays text here.
A directory of another cluster or another node must never be opened: its offsets mean something else.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from mainstem.storage.checkpoint import MalformedFileError, read_file, write_file_durably
from mainstem.storage.fs import FileSystem
from mainstem.storage.ids import id_from_text, id_to_text

NAME = "meta.properties"
VERSION = 1

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


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
        f"directory.id={id_to_text(meta.directory_id)}",
        f"version={VERSION}",
        f"cluster.id={_escape(meta.cluster_id)}",
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
        directory_id = id_from_text(field("directory.id"))
    except ValueError as error:
        raise MalformedFileError(path, f"directory.id: {error}") from error
    return MetaProperties(found["cluster.id"], int(node_id), directory_id)


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: comments, the three separators, continued lines and escapes."""
    found: dict[str, str] = {}
    logical = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        stripped = line.lstrip(" \t\f")
        if not logical and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            logical += stripped[:-1]
            continue
        key, value = _split(logical + stripped)
        found[key] = value
        logical = ""
    if logical:
        key, value = _split(logical)
        found[key] = value
    return found


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\\" and at < len(text):
            letter = text[at]
            at += 1
            if letter == "u":
                letter = chr(int(text[at : at + 4], 16))
                at += 4
            else:
                letter = _ESCAPES.get(letter, letter)
        out.append(letter)
    return "".join(out)


def _escape(value: str) -> str:
    out: list[str] = []
    for index, letter in enumerate(value):
        if letter in "=:#!\\" or (letter == " " and index == 0):
            out.append("\\" + letter)
        elif " " <= letter <= "~":
            out.append(letter)
        else:
            units = letter.encode("utf-16-be")
            out.extend(f"\\u{units[n] << 8 | units[n + 1]:04X}" for n in range(0, len(units), 2))
    return "".join(out)
