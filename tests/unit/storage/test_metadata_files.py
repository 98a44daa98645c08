"""The files beside the metadata log: snapshots and the election state, whole or not at all."""

import pytest

from mainstem.core.raft.election import ElectionState
from mainstem.core.raft.quorum import one_voter
from mainstem.storage.checkpoint import MalformedFileError
from mainstem.storage.metadata_snapshot import (
    Snapshot,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    find_snapshots,
    parse_file_name,
    read_snapshot,
    remove_unfinished,
    write_snapshot,
)
from mainstem.storage.posix import PosixFileSystem
from mainstem.storage.quorum_state import format_quorum_state, parse_quorum_state, read_quorum_state, write_quorum_state

VOTERS = one_voter(1, bytes(range(16)), [("CONTROLLER", "localhost", 9093)])


def snapshot_bytes(values: list[bytes]) -> bytes:
    return b"".join(encode_snapshot(Snapshot(values, 1234, 1, VOTERS), 5, 99))


def test_a_snapshot_reads_back_as_it_was_written(tmp_path: object) -> None:
    fs = PosixFileSystem()
    values = [bytes([n % 251]) * (n % 700 + 1) for n in range(9000)]
    path = f"{tmp_path}/{SnapshotId(42, 5).file_name}"
    write_snapshot(fs, path, encode_snapshot(Snapshot(values, 1234, 1, VOTERS), 5, 99))
    found = read_snapshot(fs, path)
    assert list(found.values) == values
    assert (found.last_timestamp, found.kraft_version, found.voters) == (1234, 1, VOTERS)
    assert [one.file_name for one in find_snapshots(fs, str(tmp_path))] == [
        "00000000000000000042-0000000005.checkpoint"
    ]


def test_a_snapshot_that_is_not_whole_is_none() -> None:
    whole = snapshot_bytes([b"one", b"two"])
    assert list(decode_snapshot("x", whole).values) == [b"one", b"two"]
    for size in range(0, len(whole), 7):
        with pytest.raises(MalformedFileError, match="whole"):
            decode_snapshot("x", whole[:size])
    with pytest.raises(MalformedFileError, match="whole"):
        decode_snapshot("x", whole + whole)


def test_a_flipped_bit_is_noticed(tmp_path: object) -> None:
    fs = PosixFileSystem()
    whole = snapshot_bytes([b"one", b"two"])
    path = f"{tmp_path}/{SnapshotId(1, 1).file_name}"
    for at in range(16, len(whole), 5):
        damaged = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        write_snapshot(fs, path, [damaged])
        try:
            found = read_snapshot(fs, path)
        except MalformedFileError:
            continue
        # Length, offset and epoch of a batch are not under its CRC; what it holds is.
        assert list(found.values) == [b"one", b"two"]


def test_only_whole_names_are_snapshots_and_unfinished_ones_go(tmp_path: object) -> None:
    fs = PosixFileSystem()
    for name in ("00000000000000000007-0000000001.checkpoint.part", "bootstrap.checkpoint", "7-1.checkpoint", "x"):
        assert parse_file_name(name) is None
        fs.open(f"{tmp_path}/{name}", create=True).close()
    remove_unfinished(fs, str(tmp_path))
    assert fs.list_directory(str(tmp_path)) == ["7-1.checkpoint", "bootstrap.checkpoint", "x"]


def test_the_election_state_is_kept_in_kafkas_words(tmp_path: object) -> None:
    fs = PosixFileSystem()
    assert read_quorum_state(fs, str(tmp_path)) is None
    state = ElectionState(leader_id=1, epoch=3)
    write_quorum_state(fs, str(tmp_path), state)
    assert read_quorum_state(fs, str(tmp_path)) == state
    assert format_quorum_state(state) == (
        b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_an_election_state_from_before_directories_is_read() -> None:
    old = format_quorum_state(ElectionState(leader_id=1, epoch=1), [1])
    assert old == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    old = b'{"clusterId":"","leaderId":2,"leaderEpoch":9,"votedId":-1,"currentVoters":[],"data_version":0}'
    assert parse_quorum_state("x", old) == ElectionState(leader_id=2, epoch=9)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"leaderId":1,"leaderEpoch":"x","votedId":1,"data_version":1}'])
def test_a_broken_election_state_stops_the_start(data: bytes) -> None:
    with pytest.raises(MalformedFileError, match="election"):
        parse_quorum_state("x", data)
