"""Transaction markers equal Kafka's, and control records of any type can be built and parsed."""

import pytest

from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder, empty_batch
from mainstem.protocol.control import (
    ControlType,
    EndMarker,
    build_control_batch,
    build_end_marker,
    control_key,
    parse_control_key,
    parse_end_marker,
)
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.records import iterate_records
from tests.unit.protocol.test_builder import GOLDEN


@pytest.mark.parametrize(("name", "commit"), [("commit", True), ("abort", False)])
def test_a_marker_is_kafkas_byte_for_byte(name: str, commit: bool) -> None:
    data = build_end_marker(EndMarker(4711, 3, commit, 12, offset=42, timestamp=1700000000000), leader_epoch=5)
    assert data == GOLDEN[name]
    batch = BatchView(data, 0)
    assert (batch.attributes, batch.base_sequence) == (0x30, -1)
    marker = parse_end_marker(batch)
    assert marker is not None
    assert (marker.producer_id, marker.producer_epoch, marker.commit) == (4711, 3, commit)
    assert (marker.coordinator_epoch, marker.offset, marker.timestamp) == (12, 42, 1700000000000)


def test_quorum_records_share_a_batch_without_a_producer() -> None:
    kinds = [ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    data = build_control_batch([(kind, bytes([kind])) for kind in kinds], 7, 99, leader_epoch=2)
    batch = BatchView(data, 0)
    batch.check(len(data))
    assert (batch.attributes, batch.producer_id, batch.leader_epoch, batch.base_offset) == (0x20, -1, 2, 7)
    records = list(iterate_records(batch))
    assert [parse_control_key(record.key) for record in records] == kinds
    assert [record.value for record in records] == [bytes([kind]) for kind in kinds]


def test_another_control_record_is_no_marker() -> None:
    assert parse_end_marker(BatchView(build_control_batch([(2, b"")], 0, 0, 0), 0)) is None


def test_what_compaction_leaves_in_a_markers_place_is_no_marker() -> None:
    header = BatchView(build_end_marker(EndMarker(4711, 3, True, 12, offset=42, timestamp=1), leader_epoch=5), 0)
    assert parse_end_marker(BatchView(empty_batch(header), 0)) is None


def test_a_key_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_control_key(control_key(6, version=3) + b"more") == 6


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_broken_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(RemoteError) as caught:
        parse_control_key(key)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_a_broken_marker_is_refused(value: bytes | None) -> None:
    builder = BatchBuilder(transactional=True, control=True)
    builder.append(0, control_key(ControlType.COMMIT), value)
    with pytest.raises(RemoteError):
        parse_end_marker(BatchView(builder.build(), 0))


def test_a_batch_of_data_is_no_marker() -> None:
    builder = BatchBuilder()
    builder.append(0, control_key(ControlType.COMMIT), b"\x00" * 6)
    with pytest.raises(RemoteError):
        parse_end_marker(BatchView(builder.build(), 0))
