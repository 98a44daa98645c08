"""Files that no log has opened, read as they lie there."""

from pathlib import Path

import pytest

from mainstem.protocol.batch import iterate_batches
from mainstem.storage.offline import find_folders, first_open_transaction, read_batches, segments
from mainstem.storage.posix import PosixFileSystem
from tests.support.logs import NOW_MS, append, batch, config, open_in


def test_a_folder_is_read_as_it_lies_there(tmp_path: Path) -> None:
    log = open_in(PosixFileSystem(), config(segment_bytes=300), directory=str(tmp_path / "orders-3"))
    for number in range(6):
        append(log, batch(b"%02d" % number, producer_id=1, epoch=0, sequence=number, transactional=number > 3))
    log.close(NOW_MS)
    (tmp_path / "empty-0").mkdir()
    [folder] = find_folders(str(tmp_path))
    assert [folder] == find_folders(folder.path)
    assert (folder.topic, folder.partition) == ("orders", 3)
    parts = segments(folder.path)
    assert len(parts) > 1
    found = [
        each.base_offset
        for part in parts
        for data in read_batches(part)
        for each in iterate_batches(data, 0, len(data))
    ]
    assert found == list(range(6))
    assert first_open_transaction(folder.path) == 4


def test_what_is_opened_for_reading_only_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = PosixFileSystem(read_only=True).open(str(tmp_path / "f"))
    assert file.read_at(0, 3) == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, [b"x"])
    file.close()
