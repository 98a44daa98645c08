"""A network between simulated processes: byte streams that are slow, cut, reset, and never out of order.

- A connection is two pipes. The bytes of one pipe arrive in the order they were written, in pieces cut at drawn places
  (N2, N4); across connections everything may overtake everything (N3). No byte of a living connection is lost: a cut
  holds them (N6, N9), a dead connection drops them.
- A reset reaches its two ends at different times. What the client had sent may still arrive long after the client has
  given up and connected anew (N10); what the server answered meanwhile is lost (N5).
- A reader that does not read fills its pipe, and then the writer's buffer (N12).
- A process that dies is found out by its peers; the bytes it had sent still arrive.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from mainstem.sim.draws import squared
from mainstem.sim.loop import Scheduler, SimLoop

PIPE_BYTES: Final = 256 << 10
CONNECT_S: Final = 0.0005


class NetworkFaults:
    """What the network does to its bytes now; the nemesis turns the knobs."""

    def __init__(self) -> None:
        self.delay_s = 0.0002
        self.slow_share = 0.0
        """Of the pieces, how many take up to `slow_s`."""
        self.slow_s = 0.2
        self.split_share = 0.02
        self.lose_answer_share = 0.0
        """Of the server's writes, how many find their connection dead (N5)."""
        self.zombie_share = 0.0
        """Of the client's writes, how many arrive late, after the client saw its connection die (N10)."""


class Pipe:
    """One direction of a connection."""

    __slots__ = ("arrived", "buffered", "held", "in_flight", "last_arrival", "unsent")

    def __init__(self) -> None:
        self.unsent: deque[bytes] = deque()
        self.buffered = 0
        """Bytes in `unsent`: in the writer's own buffer."""
        self.in_flight = 0
        self.arrived: deque[bytes] = deque()
        self.last_arrival = 0.0
        self.held = 0


class SimTransport(asyncio.Transport):
    """One end of a connection, as its process sees it."""

    def __init__(self, network: "Network", loop: SimLoop, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__({"peername": remote, "sockname": local})
        self.loop = loop
        self.peer: SimTransport | None = None
        self.protocol: Any = None
        self.number = 0
        self.is_server = False
        self.is_made = False
        """Whether its protocol was told of it: one that was not never hears of its end."""
        self.incoming = Pipe()
        self._network = network
        self._reading = True
        self._closing = False
        self._lost = False
        self._high = 64 << 10
        self._full = False

    @property
    def is_lost(self) -> bool:
        return self._lost

    # What a protocol calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._lost or self.loop.is_dead or not data:
            return
        self._network.written(self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Sends what is buffered, then ends."""
        if not self._closing:
            self._closing = True
            self._network.closed(self)

    def abort(self) -> None:
        self._closing = True
        self._network.aborted(self)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high

    def get_write_buffer_size(self) -> int:
        return 0 if self.peer is None else self.peer.incoming.buffered

    # What the network calls

    def buffered(self) -> None:
        if not self._full and self.get_write_buffer_size() > self._high:
            self._full = True
            self.protocol.pause_writing()

    def drained(self) -> None:
        if self._full and not self._lost and self.get_write_buffer_size() == 0:
            self._full = False
            self.protocol.resume_writing()

    def receive(self, data: bytes) -> None:
        self.incoming.arrived.append(data)
        self.loop.call_soon(self._read)

    def _read(self) -> None:
        pipe = self.incoming
        # Who has closed or aborted a connection hears nothing of it but its end.
        while pipe.arrived and self._reading and not self._closing:
            data = pipe.arrived.popleft()
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                at = 0
                while at < len(data) and not self._closing:
                    room = memoryview(self.protocol.get_buffer(-1))
                    count = min(len(room), len(data) - at)
                    room[:count] = data[at : at + count]
                    self.protocol.buffer_updated(count)
                    at += count
            else:
                self.protocol.data_received(data)
            self._network.consumed(self)

    def lose(self, error: Exception | None) -> None:
        """The process learns that the connection is no more."""
        if not self._lost:
            self._lost = True
            self._closing = True
            self.incoming.arrived.clear()
            if self.is_made:
                self.protocol.connection_lost(error)


class SimServer(asyncio.AbstractServer):
    def __init__(self, network: "Network", loop: SimLoop, factory: Callable[[], Any], address: tuple[str, int]) -> None:
        self.loop = loop
        self.factory = factory
        self.address = address
        self.is_serving_now = False
        self._network = network

    @property
    def sockets(self) -> tuple["SimServer"]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self.is_serving_now = False
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    async def start_serving(self) -> None:
        self.is_serving_now = True

    def is_serving(self) -> bool:
        return self.is_serving_now

    async def serve_forever(self) -> None:
        self.is_serving_now = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class Network:
    def __init__(self, scheduler: Scheduler, rng: Random, trace: Callable[..., None], count: Callable[[str], None]):
        self.in_time: set[str] = set()
        """Clients whose requests never arrive late."""
        self.faults = NetworkFaults()
        self.servers: dict[tuple[str, int], SimServer] = {}
        self.connections: dict[int, tuple[SimTransport, SimTransport]] = {}
        """Those that live, by number: the client's end, the server's."""
        self.pipe_bytes = PIPE_BYTES
        """How much one direction of a connection holds before its writer has to wait."""
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._count = count
        self._cut_until: dict[tuple[str, str], float] = {}
        self._last_arrival = 0.0
        """The latest at which anything that is on its way, or was, arrives."""
        self._ports = 40_000
        self._numbers = 0

    # Setting up

    async def listen(
        self, loop: SimLoop, factory: Callable[[], Any], host: str | None, port: int, serve: bool
    ) -> SimServer:
        if not port:
            self._ports += 1
            port = self._ports
        address = (loop.name, port)
        old = self.servers.get(address)
        if old is not None and not old.loop.is_dead:
            raise OSError(98, f"{host}:{port} is taken")
        server = SimServer(self, loop, factory, address)
        server.is_serving_now = serve
        self.servers[address] = server
        return server

    def connecting(
        self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int
    ) -> "asyncio.Future[tuple[Any, Any]]":
        done: asyncio.Future[tuple[Any, Any]] = loop.create_future()
        there = self._arrival(loop.name, host, self._scheduler.now)
        self._scheduler.at(there, partial(self._accept, loop, factory, (host, port), done))
        return done

    def _accept(
        self, loop: SimLoop, factory: Callable[[], Any], address: tuple[str, int], done: "asyncio.Future[Any]"
    ) -> None:
        server = self.servers.get(address)
        back = self._arrival(address[0], loop.name, self._scheduler.now)
        if server is None or server.loop.is_dead or not server.is_serving_now:
            refused = ConnectionRefusedError(111, f"{address[0]}:{address[1]} refuses")
            self._scheduler.at(back, partial(_call, loop, _fail, done, refused))
            return
        self._numbers += 1
        self._ports += 1
        ours = SimTransport(self, loop, (loop.name, self._ports), address)
        theirs = SimTransport(self, server.loop, address, (loop.name, self._ports))
        ours.peer, theirs.peer = theirs, ours
        ours.number = theirs.number = self._numbers
        theirs.is_server = True
        self.connections[self._numbers] = (ours, theirs)
        ours.protocol = factory()

        def accepted() -> None:
            theirs.protocol = server.factory()
            theirs.is_made = True
            theirs.protocol.connection_made(theirs)

        def connected() -> None:
            if ours.is_lost:
                # As the next SYN would find out: whoever connects does not wait for its own time-out.
                _fail(done, ConnectionResetError("the peer is gone"))
            if done.done():
                ours.abort()
                return
            ours.is_made = True
            ours.protocol.connection_made(ours)
            done.set_result((ours, ours.protocol))

        server.loop.call_soon(accepted)
        self._trace("connect", loop.name, address[0], self._numbers)
        self._scheduler.at(back, partial(_call, loop, connected))

    # Bytes

    def _arrival(self, source: str, target: str, now: float) -> float:
        faults, rng = self.faults, self._rng
        delay = faults.delay_s * (0.5 + rng.random())
        if faults.slow_share and rng.random() < faults.slow_share:
            delay += rng.random() * faults.slow_s
            self._count("N2 delay")
        return max(now, self._cut_until.get((source, target), 0.0)) + delay

    def written(self, transport: SimTransport, data: bytes) -> None:
        peer = transport.peer
        assert peer is not None
        if peer.is_lost or peer.loop.is_dead or transport.number not in self.connections:
            return  # after the end of a connection nothing more gets through, though not everyone knows yet
        if transport.is_server:
            if self.faults.lose_answer_share and self._rng.random() < self.faults.lose_answer_share:
                self._count("N5 answer lost")
                self.reset(transport.number, "the answer is lost")
                return
        elif self._comes_late(transport.loop.name):
            self._make_zombie(transport, peer, data)
            return
        pipe = peer.incoming
        if pipe.unsent or (pipe.held + len(data) > self.pipe_bytes and pipe.held):
            pipe.unsent.append(data)
            pipe.buffered += len(data)
            self._count("N12 back-pressure")
            transport.buffered()
        else:
            self._launch(transport, peer, data)

    def _comes_late(self, name: str) -> bool:
        share = self.faults.zombie_share
        return share > 0 and name not in self.in_time and self._rng.random() < share

    def _launch(self, source: SimTransport, target: SimTransport, data: bytes) -> None:
        pieces = [data]
        if len(data) > 1 and self._rng.random() < self.faults.split_share:
            cut = self._rng.randrange(1, len(data))
            pieces = [data[:cut], data[cut:]]
        pipe = target.incoming
        for piece in pieces:
            pipe.held += len(piece)
            pipe.in_flight += len(piece)
            arrival = max(pipe.last_arrival, self._arrival(source.loop.name, target.loop.name, self._scheduler.now))
            # A hair later than what went before: what is due at one instant has no order.
            pipe.last_arrival = arrival + 1e-9
            if arrival < self._last_arrival:
                self._count("N3 overtaken")  # what another connection was given before this
            else:
                self._last_arrival = arrival
            self._scheduler.at(arrival, partial(self._arrive, target, piece))

    def _arrive(self, target: SimTransport, piece: bytes) -> None:
        target.incoming.in_flight -= len(piece)
        if not target.loop.is_dead and not target.is_lost:
            self._trace("arrive", target.loop.name, target.number, len(piece))
            target.receive(piece)

    def consumed(self, target: SimTransport) -> None:
        """The reader has read: what waited to be sent may go."""
        pipe = target.incoming
        pipe.held = pipe.in_flight
        for piece in pipe.arrived:
            pipe.held += len(piece)
        source = target.peer
        assert source is not None
        if pipe.unsent:
            while pipe.unsent and pipe.held < self.pipe_bytes:
                data = pipe.unsent.popleft()
                pipe.buffered -= len(data)
                self._launch(source, target, data)
            if not source.loop.is_dead and not source.is_lost:
                source.loop.call_soon(source.drained)

    # Ends

    def closed(self, transport: SimTransport) -> None:
        peer = transport.peer
        assert peer is not None
        pipe = peer.incoming
        while pipe.unsent:
            self._launch(transport, peer, pipe.unsent.popleft())
        pipe.buffered = 0
        self.connections.pop(transport.number, None)
        transport.loop.call_soon(transport.lose, None)
        self._scheduler.at(
            max(pipe.last_arrival + 1e-9, self._arrival(transport.loop.name, peer.loop.name, self._scheduler.now)),
            partial(self._tell_lost, peer, None),
        )

    def aborted(self, transport: SimTransport) -> None:
        peer = transport.peer
        assert peer is not None
        self.connections.pop(transport.number, None)
        transport.loop.call_soon(transport.lose, None)
        there = self._arrival(transport.loop.name, peer.loop.name, self._scheduler.now)
        self._scheduler.at(there, partial(self._tell_lost, peer, ConnectionResetError("the peer is gone")))

    def _tell_lost(self, end: SimTransport, error: Exception | None) -> None:
        if end.protocol is not None and not end.loop.is_dead:
            end.loop.call_soon(end.lose, error)

    def reset(self, number: int, why: str, kind: str = "reset") -> None:
        """The connection dies under both, now."""
        ends = self.connections.pop(number, None)
        if ends is not None:
            self._trace(kind, number, why)
            for end in ends:
                later = self._arrival("", end.loop.name, self._scheduler.now)
                self._scheduler.at(later, partial(self._tell_lost, end, ConnectionResetError(why)))

    def _make_zombie(self, client: SimTransport, server: SimTransport, data: bytes) -> None:
        """The client's connection dies, its request arrives all the same, some time after."""
        self._count("N10 late request")
        self._trace("zombie", client.number, len(data))
        self.connections.pop(client.number, None)
        late = self._scheduler.now + squared(self._rng) * 3
        # Everything before it in the stream comes before it.
        server.incoming.last_arrival = max(server.incoming.last_arrival, late)
        self._launch(client, server, data)
        error = ConnectionResetError("the connection died, its last request did not")
        self._scheduler.later(0.001, partial(self._tell_lost, client, error))
        self._scheduler.at(server.incoming.last_arrival + 0.05, partial(self._tell_lost, server, error))

    def cut(self, source: str, target: str, seconds: float) -> None:
        """Nothing gets from one process to the other for some time; what is sent meanwhile arrives afterwards."""
        self._cut_until[source, target] = self._scheduler.now + seconds
        self._trace("cut", source, target, round(seconds, 3))

    def heal(self) -> None:
        self._cut_until.clear()
        self.faults = NetworkFaults()

    def process_died(self, loop: SimLoop) -> None:
        """Its kernel, or whoever reaches for it next, tells its peers."""
        for address, server in list(self.servers.items()):
            if server.loop is loop:
                del self.servers[address]
        for number, ends in list(self.connections.items()):
            if any(end.loop is loop for end in ends):
                self.reset(number, f"{loop.name} died", "hung up")


def _fail(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _call(loop: SimLoop, callback: Callable[..., None], *args: Any) -> None:
    loop.call_soon(callback, *args)
