"""Offsets are written and read by hand where they are of the usual shape: the same bytes as declared, in both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.core.group.records import offset_commit, offset_key, read_offset_key, read_offset_value
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.primitives import ZERO_UUID

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


@given(TEXT, TEXT, I32)
def test_keys_are_as_declared(group: str, topic: str, partition: int) -> None:
    declared = GROUP_RECORDS.encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    assert offset_key(group, topic, partition) == declared
    assert read_offset_key(declared) == (group, topic, partition)


@given(I64, I32, TEXT, I64, st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16), st.integers(0, 4))
def test_values_are_as_declared(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: bytes, version: int
) -> None:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        topic_id=topic_id,
    )
    assert offset_commit("g", "t", 0, value).value == GROUP_RECORDS.encode_value(value, 4)
    written = GROUP_RECORDS.encode_value(value, version)
    assert read_offset_value(written) == GROUP_RECORDS.decode_value(OffsetCommitKey.API_KEY, written)


@given(st.binary(max_size=60))
def test_broken_records_raise_nothing_but_remote_error(data: bytes) -> None:
    for prefix in (b"\x00\x01", b"\x00\x04", b""):
        for read in (read_offset_key, read_offset_value):
            try:
                read(prefix + data)
            except RemoteError:
                continue


def test_a_cut_record_is_broken() -> None:
    key = offset_key("group", "topic", 3)
    value = offset_commit("g", "t", 0, OffsetCommitValue(offset=1, metadata="m", commit_timestamp=2)).value
    assert value is not None
    for length in range(len(key)):
        with pytest.raises(RemoteError):
            read_offset_key(key[:length])
    for length in range(len(value)):
        with pytest.raises(RemoteError):
            read_offset_value(value[:length])
