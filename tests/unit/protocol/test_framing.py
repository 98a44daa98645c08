"""Frames come out of a stream whole, however it is cut, and a peer cannot make us allocate by announcing."""

import os
import random
import struct

import pytest

from mainstem.protocol.errors import RemoteError
from mainstem.protocol.framing import FrameReceiver, SharedBuffer


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("step", [1, 3, 4, 5, 1000, 1 << 20])
def test_frames_come_out_whole_however_the_stream_is_cut(step: int) -> None:
    frames = [b"", b"x", os.urandom(5000), b"yz", os.urandom(700_000)]
    stream = b"".join(framed(frame) for frame in frames)
    receiver = FrameReceiver(SharedBuffer(1 << 20), 1 << 20)
    seen: list[bytes] = []
    at = 0
    while at < len(stream):
        room = receiver.buffer()
        piece = stream[at : at + min(step, len(room))]
        room[: len(piece)] = piece
        seen += receiver.received(len(piece))
        at += len(piece)
    assert seen == frames
    assert receiver.held_bytes == 0


def test_announcing_a_large_frame_allocates_only_for_what_was_sent() -> None:
    receiver = FrameReceiver(SharedBuffer(), 100 << 20)
    room = receiver.buffer()
    room[:5] = struct.pack(">i", 100 << 20) + b"x"
    assert receiver.received(5) == []
    assert receiver.held_bytes <= 256 << 10


def test_a_negative_size_is_refused() -> None:
    receiver = FrameReceiver(SharedBuffer(), 1000)
    receiver.buffer()[:4] = b"\xff\xff\xff\xff"
    with pytest.raises(RemoteError):
        receiver.received(4)


def test_a_frame_larger_than_its_first_buffer_grows_with_what_has_come() -> None:
    receiver = FrameReceiver(SharedBuffer(4096), 10 << 20)
    stream = framed(os.urandom(3 << 20))
    seen: list[bytes] = []
    at = 0
    while at < len(stream):
        room = receiver.buffer()
        piece = stream[at : at + len(room)]
        room[: len(piece)] = piece
        at += len(piece)
        seen += receiver.received(len(piece))
        assert receiver.held_bytes <= max(2 * at, 256 << 10)
    assert seen == [stream[4:]]
    assert receiver.held_bytes == 0


def test_many_small_frames_come_out_of_one_read() -> None:
    receiver = FrameReceiver(SharedBuffer(), 100)
    stream = framed(b"x") * 5000
    receiver.buffer()[: len(stream)] = stream
    assert receiver.received(len(stream)) == [b"x"] * 5000


def test_large_frames_of_several_connections_do_not_mix() -> None:
    shared = SharedBuffer()
    rng = random.Random(5)
    frames = [[rng.randbytes(size) for size in (10, 300_000, 5, 2_000_000, 200_000, 6 << 20)] for _ in range(3)]
    streams = [b"".join(framed(frame) for frame in each) for each in frames]
    receivers = [FrameReceiver(shared, 10 << 20) for _ in frames]
    seen: list[list[bytes]] = [[] for _ in frames]
    at = [0] * len(frames)
    while any(at[n] < len(streams[n]) for n in range(3)):
        n = rng.randrange(3)
        room = receivers[n].buffer()
        piece = streams[n][at[n] : at[n] + min(len(room), rng.choice([1, 1000, 70_000, 1 << 20]))]
        room[: len(piece)] = piece
        at[n] += len(piece)
        seen[n] += receivers[n].received(len(piece))
    assert seen == frames
    assert not shared.is_lent


def test_a_connection_that_is_lost_gives_back_what_it_borrowed() -> None:
    shared = SharedBuffer()
    receiver = FrameReceiver(shared, 10 << 20)
    receiver.buffer()[:5] = struct.pack(">i", 1 << 20) + b"x"
    receiver.received(5)
    assert shared.is_lent
    receiver.release()
    assert not shared.is_lent
    assert receiver.held_bytes == 0
