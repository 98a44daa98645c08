"""Connections over real sockets: order, bounds, and slices of files, under both event loops."""

import asyncio
import errno
import gc
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mainstem.net.connection import Exchange
from mainstem.net.listener import Listener
from mainstem.protocol.framing import SharedBuffer

Scenario = Callable[[Callable[[Exchange], None]], Coroutine[Any, Any, "Peer"]]


class Peer:
    """A plain client: writes frames, reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: Listener) -> None:
        self.reader, self.writer, self.listener = reader, writer, listener

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)


async def connect(
    handler: Callable[[Exchange], None], max_frame_bytes: int = 1 << 20, look_interval_max_s: float = 10.0
) -> Peer:
    loop = asyncio.get_running_loop()
    listener = Listener(
        loop,
        "PLAINTEXT",
        handler,
        SharedBuffer(),
        max_frame_bytes=max_frame_bytes,
        look_interval_max_s=look_interval_max_s,
    )
    await listener.open("127.0.0.1", 0)
    await listener.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    return Peer(reader, writer, listener)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def runner(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as started:
            started.run(asyncio.wait_for(scenario, 20))

    return runner


class Slice:
    """A slice of a real file; `cold_reads` says how many look-ups find nothing in memory."""

    def __init__(self, path: Path, position: int, size: int, cold_reads: int = 0) -> None:
        self.position, self.size = position, size
        self._descriptor = os.open(path, os.O_RDONLY)
        self._cold_reads = cold_reads
        self.released = 0

    def descriptor(self) -> int:
        return self._descriptor

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, self.position + at)

    def read_cached(self, at: int, size: int) -> bytes | None:
        if self._cold_reads:
            self._cold_reads -= 1
            return None
        return self.read(at, size)

    def release(self) -> None:
        self.released += 1
        os.close(self._descriptor)


def test_others_have_their_turn_while_one_client_has_thousands_of_requests_waiting(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        answered_in_turn: list[int] = [0]

        def next_turn() -> None:
            answered_in_turn.append(0)
            loop.call_soon(next_turn)

        def answer(exchange: Exchange) -> None:
            answered_in_turn[-1] += 1
            exchange.respond([framed(exchange.frame)])

        peer = await connect(answer)
        next_turn()
        count = 5000
        peer.send(*(str(i).encode() for i in range(count)))
        for i in range(count):
            assert await peer.receive() == str(i).encode()
        assert max(answered_in_turn) <= 200
        peer.listener.close()

    run(scenario())


def test_the_next_request_is_taken_up_when_the_one_before_it_is_answered(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        open_exchanges: list[Exchange] = []
        peer = await connect(open_exchanges.append)
        count = 200
        peer.send(*(str(i).encode() for i in range(count)))
        for i in range(count):
            while len(open_exchanges) <= i:
                await asyncio.sleep(0)
            assert len(open_exchanges) == i + 1
            open_exchanges[i].respond([framed(open_exchanges[i].frame)])
            assert await peer.receive() == str(i).encode()
        peer.listener.close()

    run(scenario())


@pytest.mark.parametrize("answered_at_once", [True, False])
@pytest.mark.parametrize("behind", [0, 1, 15, 16, 17, 200])
def test_what_comes_behind_a_request_that_ends_its_connection_is_not_carried_out(
    run: Callable[[Coroutine[Any, Any, None]], None], behind: int, answered_at_once: bool
) -> None:
    taken: list[bytes] = []

    def handler(exchange: Exchange) -> None:
        taken.append(exchange.frame)
        answer = exchange.close if exchange.frame == b"bad" else lambda: exchange.respond([framed(b"ok")])
        if answered_at_once:
            answer()
        else:
            asyncio.get_running_loop().call_later(0.001, answer)

    async def scenario() -> None:
        peer = await connect(handler)
        peer.send(b"good", b"bad", *[b"late"] * behind)
        assert await peer.receive() == b"ok"
        assert await peer.reader.read() == b""
        assert taken == [b"good", b"bad"]
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.listener.port)
        other = Peer(reader, writer, peer.listener)
        other.send(b"good")
        assert await other.receive() == b"ok"
        peer.listener.close()

    run(scenario())


@pytest.mark.parametrize("answered_at_once", [True, False])
def test_requests_before_a_length_that_cannot_be_are_answered(
    run: Callable[[Coroutine[Any, Any, None]], None], answered_at_once: bool
) -> None:
    def handler(exchange: Exchange) -> None:
        if answered_at_once:
            exchange.respond([framed(exchange.frame)])
        else:
            asyncio.get_running_loop().call_later(0.001, lambda: exchange.respond([framed(exchange.frame)]))

    async def scenario() -> None:
        peer = await connect(handler)
        peer.writer.write(framed(b"a") + framed(b"b") + b"\xff\xff\xff\xff" + framed(b"c"))
        assert [await peer.receive() for _ in range(2)] == [b"a", b"b"]
        assert await peer.reader.read() == b""
        peer.listener.close()

    run(scenario())


def test_whoever_waits_for_a_peer_that_has_gone_is_told(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def scenario() -> None:
        told = asyncio.Event()
        open_exchanges: list[Exchange] = []

        def handler(exchange: Exchange) -> None:
            open_exchanges.append(exchange)
            exchange.on_lost = told.set

        peer = await connect(handler)
        peer.send(b"a")
        while not open_exchanges:
            await asyncio.sleep(0.001)
        peer.writer.transport.abort()
        await told.wait()
        open_exchanges[0].respond([framed(b"nobody reads this")])
        assert len(open_exchanges) == 1
        peer.listener.close()

    run(scenario())


@pytest.mark.parametrize("leaves", ["closes", "resets"])
def test_a_peer_that_leaves_with_requests_behind_a_parked_one_is_noticed(
    run: Callable[[Coroutine[Any, Any, None]], None], leaves: str
) -> None:
    async def scenario() -> None:
        told = asyncio.Event()
        parked: list[Exchange] = []

        def handler(exchange: Exchange) -> None:
            parked.append(exchange)
            exchange.on_lost = told.set

        peer = await connect(handler, look_interval_max_s=0.05)
        peer.send(b"a", b"b")
        while not parked:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.15)  # it is looked at, and has not left
        assert not told.is_set()
        if leaves == "closes":
            peer.writer.close()
        else:
            peer.writer.transport.abort()
        await told.wait()
        assert len(parked) == 1
        peer.listener.close()

    run(scenario())


@pytest.mark.parametrize("size", [100, 40_000, 8_000_000])
@pytest.mark.parametrize("cold_reads", [0, 2])
def test_slices_of_files_arrive_whole_between_bytes_and_are_released_once(
    run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path, size: int, cold_reads: int
) -> None:
    content = os.urandom(size + 10)
    (tmp_path / "log").write_bytes(content)
    slices: list[Slice] = []

    def handler(exchange: Exchange) -> None:
        piece = Slice(tmp_path / "log", 7, size, cold_reads)
        slices.append(piece)
        exchange.respond([struct.pack(">i", size + 6) + b"<<<", piece, b">>>"])

    async def scenario() -> None:
        peer = await connect(handler)
        peer.send(b"x", b"y")
        for _ in range(2):
            assert await peer.receive() == b"<<<" + content[7 : 7 + size] + b">>>"
        assert [piece.released for piece in slices] == [1, 1]
        peer.listener.close()

    run(scenario())


def test_a_read_that_fails_when_the_peer_has_gone_is_nobodys_mistake(
    run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(bytes(100))
    is_read, may_fail = threading.Event(), threading.Event()
    told: list[object] = []

    class Failing(Slice):
        def read(self, at: int, size: int) -> bytes:
            is_read.set()
            may_fail.wait()
            raise OSError(errno.EIO, "the disk failed")

    piece = Failing(tmp_path / "log", 0, 100, cold_reads=1)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
        peer = await connect(lambda exchange: exchange.respond([piece]))
        peer.send(b"x")
        while not is_read.is_set():
            await asyncio.sleep(0.001)
        peer.writer.transport.abort()
        while peer.listener.connection_count:
            await asyncio.sleep(0.001)
        may_fail.set()
        while not piece.released:
            await asyncio.sleep(0.001)
        gc.collect()
        await asyncio.sleep(0)
        peer.listener.close()

    run(scenario())
    assert told == []


def test_a_peer_that_does_not_read_stops_being_read_and_hurts_nobody(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    answered = 0

    def handler(exchange: Exchange) -> None:
        nonlocal answered
        answered += 1
        exchange.respond([framed(bytes(1 << 20) if exchange.frame == b"big" else b"ok")])

    async def scenario() -> None:
        slow = await connect(handler)
        slow.send(*[b"big"] * 100)
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert answered < 60  # the sockets' own buffers and the bound on requests in flight, not a hundred megabytes
        reader, writer = await asyncio.open_connection("127.0.0.1", slow.listener.port)
        other = Peer(reader, writer, slow.listener)
        other.send(b"small")
        assert await other.receive() == b"ok"
        for _ in range(100):
            assert len(await slow.receive()) == 1 << 20
        slow.listener.close()

    run(scenario())


def test_an_oversized_frame_ends_its_connection_and_no_other(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def scenario() -> None:
        peer = await connect(lambda exchange: exchange.respond([framed(b"ok")]), max_frame_bytes=1000)
        peer.writer.write(struct.pack(">i", 1001))
        assert await peer.reader.read() == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.listener.port)
        other = Peer(reader, writer, peer.listener)
        other.send(bytes(1000))
        assert await other.receive() == b"ok"
        peer.listener.close()

    run(scenario())


@pytest.mark.timeout(30)
def test_a_peer_that_goes_while_a_file_is_sent_leaves_the_loop_to_others(
    run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(bytes(1_000_000))
    slices: list[Slice] = []

    def handler(exchange: Exchange) -> None:
        slices.append(Slice(tmp_path / "log", 0, 1_000_000))
        # What we know of a peer's leaving only by the write that fails.
        ours = socket.socket(fileno=os.dup(exchange.connection._descriptor))
        ours.shutdown(socket.SHUT_WR)
        ours.close()
        exchange.respond([slices[-1]])

    async def scenario() -> None:
        peer = await connect(handler)
        peer.send(b"x")
        while not slices or not slices[0].released:
            await asyncio.sleep(0.01)
        assert slices[0].released == 1
        peer.listener.close()

    run(scenario())
