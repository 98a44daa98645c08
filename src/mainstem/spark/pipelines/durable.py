"""Files that are on the disk when a function returns."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: str) -> None:
    """All of it or, where the machine stops, what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # A write says of itself that the disk is full, and not which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from error
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
