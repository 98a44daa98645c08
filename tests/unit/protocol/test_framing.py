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


@pytest.mark.parametrize("size", [-1, 1001])
def test_a_size_that_cannot_be_is_refused_and_what_came_before_it_is_not(size: int) -> None:
    receiver = FrameReceiver(SharedBuffer(), 1000)
    sent = struct.pack(">i", 1) + b"x" + struct.pack(">i", size)
    receiver.buffer()[: len(sent)] = sent
    assert receiver.received(len(sent)) == [b"x"]
    assert isinstance(receiver.refused, RemoteError)


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


def test_connections_that_take_turns_each_get_their_own_frames() -> None:
    """What has come of one's frame is saved before another reads over it."""
    rng = random.Random(4)
    shared = SharedBuffer(8192)
    receivers = [FrameReceiver(shared, 1 << 20) for _ in range(4)]
    frames = [[rng.randbytes(rng.choice([0, 1, 3, 100, 5000, 20_000])) for _ in range(60)] for _ in receivers]
    streams = [b"".join(framed(frame) for frame in each) for each in frames]
    ats = [0] * len(receivers)
    seen: list[list[bytes]] = [[] for _ in receivers]
    while any(at < len(stream) for at, stream in zip(ats, streams, strict=True)):
        which = rng.choice([each for each, at in enumerate(ats) if at < len(streams[each])])
        for _ in range(rng.choice([1, 1, 2, 5])):
            room = receivers[which].buffer()
            assert len(room) > 0
            piece = streams[which][ats[which] : ats[which] + min(rng.choice([1, 2, 7, 900, 8192]), len(room))]
            room[: len(piece)] = piece
            ats[which] += len(piece)
            seen[which] += receivers[which].received(len(piece))
    assert seen == frames


def test_a_large_frame_that_one_connection_sends_is_not_collected_elsewhere() -> None:
    receiver = FrameReceiver(SharedBuffer(1 << 20), 1 << 20)
    stream = framed(b"x" * 600_000) * 5
    at, seen = 0, 0
    while at < len(stream):
        room = receiver.buffer()
        piece = stream[at : at + min(len(room), 100_000)]
        room[: len(piece)] = piece
        at += len(piece)
        seen += len(receiver.received(len(piece)))
        assert receiver.held_bytes == 0
    assert seen == 5


def test_a_connection_that_is_gone_holds_nothing_of_the_shared_buffer() -> None:
    shared = SharedBuffer(4096)
    gone, other = FrameReceiver(shared, 1000), FrameReceiver(shared, 1000)
    gone.buffer()[:5] = framed(b"half")[:5]
    assert gone.received(5) == []
    assert shared.waiting is gone
    gone.close()
    assert shared.waiting is None
    other.buffer()[:5] = framed(b"x")
    assert other.received(5) == [b"x"]
