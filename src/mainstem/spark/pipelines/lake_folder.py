"""What the folder of a lake says of itself: which topic is in it, in which shape, by which query, and who works on it.

A lake has one topic and one shape. Fields may come and go, a field's type may not change, and its batches are those of
one query: a checkpoint that was taken away would count batches anew, under numbers that are there already. No two of
its fields differ in case only, whenever they came: Spark would take one for the other, or read nothing any more.

One process at a time works on it: another would take away files that the first has not listed yet. The lock is the
system's, so it goes with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.spark.pipelines import lake_lists
from mainstem.spark.pipelines.durable import write_durably

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CHECKPOINT: Final = ".checkpoint"
LAKE_FILE: Final = ".lake"
LOCK_FILE: Final = ".lock"
LOCK_WAIT_S: Final = 5.0
"""A query that has just ended lets go a moment later."""
POLL_S: Final = 0.05

_PLAIN_WORDS: Final = re.compile(r"[\w\s,]*")
_ONE_STRUCT: Final = re.compile(r"\s*struct\s*<", re.IGNORECASE)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local_folder(path: Path, option: str) -> Path:
    """As an absolute path: Spark's processes may have been started in another folder."""
    if _URI.match(str(path)):
        raise ValueError(f"{option}: must be a folder of the file system that driver and workers see; it is {path}")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{option}: {path} is no folder; name one, or one that is to be made")
    return path.absolute()


def check_schema(schema: str | None) -> None:
    """Told before it is put beside other columns, where Spark would stumble over a comma.

    Without Spark no more is looked at than whether each of some plain words has a type.
    """
    if schema is None:
        return
    if not schema.strip():
        raise ValueError("schema: is empty; name the fields of the JSON value, as in 'id bigint', or leave it out")
    if _PLAIN_WORDS.fullmatch(schema):
        for field in schema.split(","):
            if len(field.split()) < 2:
                what = f"{field.strip()} has no type" if field.strip() else "there is a comma too many"
                raise ValueError(_not_fields(schema, what))


def fields_of(schema: str) -> StructType:
    """What a schema names; ValueError where Spark cannot read it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from mainstem.spark.failures import sentence

    try:
        found = StructType.fromDDL(schema)
    except PySparkException as error:
        raise ValueError(_not_fields(schema, (sentence(error) or str(error)).rstrip("."))) from error
    if not isinstance(found, StructType) or _ONE_STRUCT.match(schema):
        raise ValueError(_not_fields(schema, f"it is one type, {schema}"))
    return found


def _not_fields(schema: str, what: str) -> str:
    return f"schema: {schema!r} does not name fields and their types, as 'id bigint, at timestamp' does: {what}"


class Lock:
    """Held from when it is made; ValueError where another process has it and keeps it."""

    def __init__(self, root: Path) -> None:
        self._descriptor = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._descriptor)
                    raise ValueError(f"path: another pipeline works on {root}; wait for it, or stop it") from None
                time.sleep(POLL_S)
            except OSError:
                return  # a file system without locks

    def release(self) -> None:
        os.close(self._descriptor)


def claim(root: Path, topic: str, schema: StructType) -> None:
    """Notes what is landed here; ValueError where that does not go with what was before."""
    path = root / LAKE_FILE
    fields = {field["name"]: field for field in schema.jsonValue()["fields"]}
    # Before a first batch was planned nothing is bound to it: the topic may have been misspelt.
    if path.exists() and any((root / CHECKPOINT / "offsets").glob("[0-9]*")):
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept["topic"] != topic:
            raise ValueError(f"path: {root} is a lake of {kept['topic']}; give {topic} a folder of its own")
        before = {field["name"]: field for field in kept["fields"]}
        if ("_offset" in before) != ("_offset" in fields):
            has = "the fields of its values" if "_offset" in before else "its values as they are"
            raise ValueError(f"schema: {root} has {has}; a lake has one shape, land the other in a folder of its own")
        if day_column(before) != day_column(fields):
            # Folders of both names beside each other are no table that Spark reads.
            raise ValueError(
                f"schema: days are folders {day_column(before)}=… in {root}, and would be {day_column(fields)}=… now: "
                "a field of that name comes or goes; land it in a folder of its own"
            )
        known = {name.lower(): name for name in before}
        for name in fields:
            if known.get(name.lower(), name) != name:
                raise ValueError(
                    f"schema: {known[name.lower()]} is a field in {root}, from which Spark does not tell {name}; name "
                    "it as it is there, or land the other in a folder of its own"
                )
        for name in sorted(before.keys() & fields.keys()):
            if before[name]["type"] != fields[name]["type"]:
                raise ValueError(
                    f"schema: {name} is {_shown(before[name]['type'])} in {root} and {_shown(fields[name]['type'])} "
                    "now; a field keeps its type, land the other in a folder of its own"
                )
        fields = {**before, **fields}
    write_durably(path, json.dumps({"topic": topic, "fields": [*fields.values()]}))


def landed_schema(root: Path) -> StructType:
    """The shape of what is landed here, without the day."""
    from pyspark.sql.types import StructType

    kept: dict[str, Any] = json.loads((root / LAKE_FILE).read_text(encoding="utf-8"))
    return StructType.fromJson({"type": "struct", "fields": kept["fields"]})


def check_names(schema: StructType, own: Iterable[str] = ()) -> None:
    """ValueError where Spark could not tell two fields apart, or a field from one of the record's `own` columns."""
    from pyspark.sql.types import ArrayType, StructType

    taken = {name.lower() for name in own}
    seen: dict[str, str] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name in taken:
            raise ValueError(f"schema: {field.name} is a column of the record's own in a lake; leave that field out")
        if name in seen:
            raise ValueError(f"schema: Spark does not tell {field.name} from {seen[name]}; name only one of the two")
        seen[name] = field.name
        kind = field.dataType
        while isinstance(kind, ArrayType):
            kind = kind.elementType
        if isinstance(kind, StructType):
            check_names(kind)


def day_column(columns: Iterable[str]) -> str:
    """A name for the day that no field of the value has: Spark does not tell `Date` from `date`."""
    taken = {name.lower() for name in columns}
    name = "date"
    while name in taken:
        name = f"_{name}"
    return name


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def query_id(root: Path) -> str | None:
    """The query that the checkpoint is of; None where there is none yet."""
    try:
        content = (root / CHECKPOINT / "metadata").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return str(json.loads(content)["id"])


def check_query(root: Path) -> None:
    """ValueError where batches have landed here by another query than that of the checkpoint."""
    lists = lake_lists.read(root)
    if lists.batch >= 0 and lists.query != query_id(root):
        raise ValueError(
            f"path: {root} was landed by a query whose checkpoint, {root / CHECKPOINT}, is gone or another's; put it "
            "back, or land the topic in a new folder"
        )
