"""Checkpoint files: old or new, never mixed, and never misread (D7)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.sim.changes import every_survival
from mainstem.sim.disk import SimDisk
from mainstem.storage.checkpoint import (
    OffsetCheckpoint,
    format_offsets,
    parse_offsets,
    read_file,
    write_file_durably,
)


def new_disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_directories("/d")
    return disk


def test_the_format_is_kafkas() -> None:
    assert format_offsets({("orders", 3): 17, ("a.b-c_d", 0): 0}) == b"0\n2\norders 3 17\na.b-c_d 0 0\n"
    assert format_offsets({}) == b"0\n0\n"


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=10,
    )
)
def test_what_is_written_is_read_back(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets("f", format_offsets(offsets)) == offsets


def test_a_missing_and_an_empty_file_hold_nothing() -> None:
    disk = new_disk()
    checkpoint = OffsetCheckpoint(disk, "/d", "recovery-point-offset-checkpoint")
    assert checkpoint.read() == {}
    disk.open(checkpoint.path, create=True)
    assert checkpoint.read() == {}


@pytest.mark.parametrize(
    "content",
    [
        "1\n0\n",
        "0\n",
        "0",
        "x\n0\n",
        "-0\n0\n",
        "0\n1\n",
        "0\n0\nt 0 1\n",
        "0\n1\nt 0 1",
        "0\n1\nt 0 1\n\n",
        "0\n1\nt 0\n",
        "0\n1\nt 0 1 2\n",
        "0\n1\nt 0 -1\n",
        "0\n1\nt x 1\n",
        "0\n1\nt 0 1.5\n",
        "0\n1\n 0 1\n",
        "0\n1\nt  0 1\n",
        "0\n2\nt 0 1\nt 0 2\n",
        "0\n1\nt 0 9223372036854775808\n",
        "0\n1\nt 0 ١\n",
        "0\n1\n\0\0\0\0\n",
        "\0\0\0\0\0\0",
        "\udcff\n0\n",
    ],
)
def test_anything_else_is_an_error_that_names_the_file(content: str) -> None:
    disk = new_disk()
    checkpoint = OffsetCheckpoint(disk, "/d", "c")
    disk.open(checkpoint.path, create=True).write_at(0, [content.encode("utf-8", "surrogateescape")])
    with pytest.raises(OSError, match="/d/c"):
        checkpoint.read()


def test_a_replaced_file_is_old_or_new_after_any_power_loss() -> None:
    old, new = b"old content", b"new" * 700
    disk = new_disk()
    write_file_durably(disk, "/d/c", old)
    images: list[tuple[bool, SimDisk]] = []
    done = False
    disk.after_change = lambda same: images.append((done, same.fork()))
    write_file_durably(disk, "/d/c", new)
    done = True
    images.append((done, disk.fork()))
    found = set()
    for finished, image in images:
        for kept in every_survival(image.unsynced()):
            crashed = image.fork()
            crashed.power_loss_keeping(kept)
            content = read_file(crashed, "/d/c")
            found.add(content)
            assert content == new or (content == old and not finished)
            write_file_durably(crashed, "/d/c", b"newer")
            assert read_file(crashed, "/d/c") == b"newer"
    assert found == {old, new}
    assert disk.list_directory("/d") == ["c"]


def test_a_longer_leftover_of_a_crash_does_not_leak_into_the_next_write() -> None:
    disk = new_disk()
    disk.open("/d/c.tmp", create=True).write_at(0, [b"x" * 100])
    checkpoint = OffsetCheckpoint(disk, "/d", "c")
    checkpoint.write({("t", 0): 5})
    assert checkpoint.read() == {("t", 0): 5}
    assert disk.list_directory("/d") == ["c"]
