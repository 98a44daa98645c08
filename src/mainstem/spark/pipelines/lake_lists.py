"""Which files of a lake count: lists of them, one for each batch that landed and one for each merge.

A list is written last, and whole or not at all: with it all files that it names count, and those that it replaces do
so no more. Every reader opens all lists, so they are folded into one now and then. That one names the lists that it
has taken in, which count no more from then on; they are removed when the next one is made, so that somebody who began
to look before does not find them gone. However long a lake is landed to, there are not many more than two hundred.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mainstem.spark.pipelines.durable import write_durably

BATCHES: Final = ".batches"
FOLD_AT: Final = 100
"""How many batches land before their lists are folded."""
MERGED: Final = "merged-"
FOLDED: Final = "folded-"
TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Lists:
    """What all lists together say."""

    files: dict[str, list[str]]
    """The files that count, by the table that they are of, sorted."""
    names: tuple[str, ...]
    """The lists that were read."""
    outdated: tuple[str, ...]
    """Those that are in a folded one already."""
    batch: int = -1
    """The last batch that landed."""
    query: str | None = None
    """The query that landed it."""


def read(root: Path) -> Lists:
    for _ in range(TRIES):
        try:
            return _read(root)
        except FileNotFoundError:
            continue  # folded while they were read
    return _read(root)


def _read(root: Path) -> Lists:
    contents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (root / BATCHES).glob("*.json")}
    outdated = {name for content in contents.values() for name in content.get("folds", ())}
    found: dict[str, set[str]] = {}
    gone: dict[str, set[str]] = {}
    last: dict[str, Any] = {}
    for name in sorted(contents.keys() - outdated):
        content = contents[name]
        for which, files in content["files"].items():
            found.setdefault(which, set()).update(files)
            # What is replaced is of the same table: files of a batch have the same names in all of them.
            gone.setdefault(which, set()).update(content.get("replaces", ()))
        if content.get("batch", -1) > last.get("batch", -1):
            last = content
    return Lists(
        {which: sorted(files - gone[which]) for which, files in found.items()},
        tuple(sorted(contents.keys() - outdated)),
        tuple(sorted(contents.keys() & outdated)),
        last.get("batch", -1),
        last.get("query"),
    )


def gone(root: Path) -> dict[str, list[str]]:
    """The files that count and are not there, by the table that they are of: somebody has taken them away."""
    files = read(root).files
    return {which: [name for name in names if not (root / which / name).exists()] for which, names in files.items()}


def has_landed(root: Path, batch: int) -> bool:
    """Asked before every batch, so no list is opened."""
    return batch <= _last_folded(root) or (root / BATCHES / f"{batch:012}.json").exists()


def _last_folded(root: Path) -> int:
    return max((int(path.name.split("-")[1]) for path in (root / BATCHES).glob(f"{FOLDED}*.json")), default=-1)


def note_batch(root: Path, batch: int, query: str | None, files: dict[str, list[str]]) -> None:
    """From here on the batch counts."""
    _write(root, f"{batch:012}.json", {"batch": batch, "query": query, "files": files})
    folded = _last_folded(root)
    if sum(int(path.stem) > folded for path in (root / BATCHES).glob("[0-9]*.json")) >= FOLD_AT:
        fold(root)


def note_merged(root: Path, which: str, files: list[str], replaced: list[str]) -> None:
    """From here on readers see the merged files and not their parts."""
    _write(root, f"{MERGED}{uuid.uuid4().hex}.json", {"files": {which: files}, "replaces": replaced})


def fold(root: Path) -> None:
    """Makes one list of all that count, and removes those that were made one before."""
    lists = read(root)
    for name in lists.outdated:
        (root / BATCHES / name).unlink(missing_ok=True)
    if len(lists.names) < 2 or lists.batch < 0:
        return
    content = {"batch": lists.batch, "query": lists.query, "files": lists.files, "folds": lists.names}
    _write(root, f"{FOLDED}{lists.batch:012}-{uuid.uuid4().hex}.json", content)


def _write(root: Path, name: str, content: dict[str, Any]) -> None:
    write_durably(root / BATCHES / name, json.dumps(content))
