"""Unsigned varints and uuids are Kafka's, and a cursor believes no length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.protocol.errors import RemoteError
from mainstem.protocol.primitives import Cursor, read_uvarint, uvarint
from mainstem.protocol.uuids import METADATA_TOPIC_ID, uuid_from_text, uuid_to_text


@given(value=st.integers(0, 2**32 - 1))
def test_unsigned_varints_come_back(value: int) -> None:
    encoded = uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(b"-" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    cursor = Cursor(encoded, 0)
    assert (cursor.uvarint(), cursor.at) == (value, len(encoded))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"]
)
def test_varints_cut_short_or_too_long_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        read_uvarint(data, 0)
    with pytest.raises(RemoteError):
        Cursor(data, 0).uvarint()


@pytest.mark.parametrize("value", [-1, 2**32])
def test_what_does_not_fit_an_unsigned_varint_is_our_mistake(value: int) -> None:
    with pytest.raises(ValueError, match="unsigned varint"):
        uvarint(value)


def test_uuid_text_is_kafkas() -> None:
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_TOPIC_ID
    assert uuid_from_text("LwB_Ew8kQ9OVpeO1LJiOsg").hex() == "2f007f130f2443d395a5e3b52c988eb2"


@given(uuid=st.binary(min_size=16, max_size=16))
def test_uuids_come_back(uuid: bytes) -> None:
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


@pytest.mark.parametrize("text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA!", "é" * 22, "A" * 44])
def test_what_is_no_uuid_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        uuid_from_text(text)


@pytest.mark.parametrize("method", ["int8", "int16", "int32", "int64", "uuid", "uvarint", "skip_tags", "tag_end"])
def test_a_cursor_stops_at_the_end(method: str) -> None:
    with pytest.raises(RemoteError):
        getattr(Cursor(b"", 0), method)()


def test_a_cursor_checks_lengths_before_it_believes_them() -> None:
    for data in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"):
        with pytest.raises(RemoteError):
            Cursor(data, 0).nullable_array(False)
    for data in (b"\x7f\xff", b"\xff\xfe", b"\x80\x00"):
        with pytest.raises(RemoteError):
            Cursor(data, 0).nullable_string(False)
    with pytest.raises(RemoteError):
        Cursor(b"\xff\xff\xff\xff\x0f", 0).nullable_array(True)
    with pytest.raises(RemoteError):
        Cursor(b"\x81\x80\x02" + bytes(0x8000), 0).nullable_string(True)


def test_a_cursor_tells_null_from_an_error() -> None:
    for data, compact in ((b"\xff\xff\xff\xff", False), (b"\x00", True)):
        assert Cursor(data, 0).nullable_array(compact) == -1
        assert Cursor(data, 0).nullable_string(compact) is None
        with pytest.raises(RemoteError):
            Cursor(data, 0).array(compact)
        with pytest.raises(RemoteError):
            Cursor(data, 0).string(compact)
