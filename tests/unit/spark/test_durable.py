"""What is written durably, and what is said where it cannot be."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mainstem.spark.pipelines.durable import write_durably


def test_a_full_disk_is_told_with_the_file_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "notes.json"
    write_durably(path, "before")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_durably(path, "after")
    assert path.read_text() == "before"
