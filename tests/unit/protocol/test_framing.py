"""Frames come out whole, however the bytes come in, and no peer can make us hold more than the limit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.framing import FrameSplitter, frame, size_prefix


@settings(max_examples=100, deadline=None)
@given(payloads=st.lists(st.binary(max_size=9000), max_size=6), cuts=st.lists(st.integers(1, 7000), min_size=1))
def test_frames_come_out_as_they_went_in(payloads: list[bytes], cuts: list[int]) -> None:
    splitter = FrameSplitter(10_000, 4096)
    stream = b"".join(map(frame, payloads))
    frames: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        frames += splitter.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert frames == payloads
    assert splitter.pending_bytes == 0


def test_a_receiver_writes_into_the_splitters_own_buffer() -> None:
    splitter = FrameSplitter(1000)
    room = splitter.room()
    stream = frame(b"one") + frame(b"") + frame(b"three")[:6]
    room[: len(stream)] = stream
    assert splitter.received(len(stream)) == [b"one", b""]
    assert splitter.pending_bytes == 6
    rest = frame(b"three")[6:]
    room = splitter.room()
    room[: len(rest)] = rest
    frames = splitter.received(len(rest))
    assert frames == [b"three"]
    assert type(frames[0]) is bytes


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x03\xe9", b"\x7f\xff\xff\xff"])
def test_a_size_beyond_the_limit_is_refused_before_its_bytes_come(size: bytes) -> None:
    splitter = FrameSplitter(1000)
    with pytest.raises(RemoteError) as caught:
        splitter.feed(frame(b"fine") + size)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    assert FrameSplitter(100_000).feed(frame(bytes(100_000))) == [bytes(100_000)]


def test_memory_follows_what_arrives_not_what_is_announced() -> None:
    splitter = FrameSplitter(100_000_000, 4096)
    splitter.feed(size_prefix(100_000_000) + bytes(10_000))
    assert len(splitter.room()) < 50_000


def test_a_large_frame_does_not_keep_its_memory() -> None:
    splitter = FrameSplitter(10_000_000, 4096)
    assert splitter.feed(frame(bytes(5_000_000))) == [bytes(5_000_000)]
    assert len(splitter.room()) == 4096


def test_many_small_frames_in_one_read() -> None:
    assert FrameSplitter(100).feed(frame(b"x") * 5000) == [b"x"] * 5000
