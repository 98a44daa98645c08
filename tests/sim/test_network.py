"""The simulated network: slow, cut and reset, but never out of order."""

import asyncio
from random import Random

import pytest

from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest
from mainstem.sim.client import NotSent, SimClient
from mainstem.sim.loop import Scheduler, make_loop
from mainstem.sim.network import Network


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class Pair:
    """A server that listens, and a client that is connected to it."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.counts: list[str] = []
        self.network = Network(self.scheduler, Random(seed), lambda *event: None, self.counts.append)
        self.server_loop = make_loop(self.scheduler, Random(seed), "server", self.network)
        self.client_loop = make_loop(self.scheduler, Random(seed), "client", self.network)
        self.received = Receiver()
        self.answered = Receiver()
        task = self.client_loop.create_task(self._connect())
        assert self.scheduler.run_until(task.done, 1)
        self.transport: asyncio.Transport = task.result()

    async def _connect(self) -> asyncio.Transport:
        await self.network.listen(self.server_loop, lambda: self.received, "server", 1, True)
        transport, _ = await self.client_loop.create_connection(lambda: self.answered, "server", 1)
        assert isinstance(transport, asyncio.Transport)
        return transport

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(lambda: False, self.scheduler.now + seconds)


def test_bytes_arrive_in_order_however_slow_they_are() -> None:
    for seed in range(20):
        pair = Pair(seed)
        pair.network.faults.slow_share = 0.5
        pair.network.faults.split_share = 0.5
        sent = b"".join(bytes([number]) * 50 for number in range(100))
        for at in range(0, len(sent), 50):
            pair.transport.write(sent[at : at + 50])
        pair.run(100)
        assert pair.received.data == sent


def test_a_cut_holds_bytes_and_loses_none() -> None:
    pair = Pair()
    pair.network.cut("client", "server", 5)
    pair.transport.write(b"late")
    pair.run(4)
    assert pair.received.data == b""
    pair.run(2)
    assert pair.received.data == b"late"


def test_a_late_request_arrives_after_its_client_has_given_it_up() -> None:
    pair = Pair()
    pair.network.faults.zombie_share = 1.0
    pair.transport.write(b"zombie")
    pair.run(0.01)
    assert pair.answered.lost
    pair.run(10)
    assert pair.received.data == b"zombie"
    assert pair.received.lost


def test_who_connects_to_a_server_that_dies_meanwhile_is_told() -> None:
    pair = Pair()
    pair.network.faults.slow_share = pair.network.faults.slow_s = 1.0
    late = Receiver()
    connecting = pair.client_loop.create_task(pair.client_loop.create_connection(lambda: late, "server", 1))
    assert pair.scheduler.run_until(lambda: len(pair.network.connections) == 2, 10)
    pair.network.faults.slow_share = 0.0
    pair.network.process_died(pair.server_loop)
    assert pair.scheduler.run_until(connecting.done, 10)
    assert isinstance(connecting.exception(), ConnectionResetError)
    assert not late.lost, "what was never made is not lost"


def test_nothing_gets_through_after_a_lost_answer() -> None:
    pair = Pair()
    pair.network.faults.lose_answer_share = 1.0
    server = pair.network.connections[1][1]
    server.write(b"first")
    pair.network.faults.lose_answer_share = 0.0
    server.write(b"second")
    pair.run(1)
    assert pair.answered.data == b""
    assert pair.answered.lost


@pytest.mark.parametrize("how", ["close", "abort"])
def test_who_has_ended_a_connection_hears_no_more_of_it_but_its_end(how: str) -> None:
    """Seed 88: a client was paused, and gave up when it went on. asyncio brings no data after that either."""
    pair = Pair()
    pair.client_loop.pause()
    pair.network.connections[1][1].write(b"answer")
    pair.run(1)
    assert pair.client_loop.parked
    getattr(pair.transport, how)()
    pair.client_loop.resume()
    pair.run(1)
    assert pair.answered.data == b""
    assert pair.answered.lost


def test_a_client_that_was_paused_while_its_connection_came_and_went_has_sent_nothing() -> None:
    """Seed 401043: it was told of both at once when it went on."""
    pair = Pair()
    client = SimClient(pair.client_loop, "client", ("server", 1))
    sending = pair.client_loop.create_task(client.send(ApiVersionsRequest(), 0))
    pair.run(0)
    pair.client_loop.pause()
    pair.run(0.1)
    pair.network.reset(2, "for once")
    pair.run(0.1)
    pair.client_loop.resume()
    pair.run(0.1)
    assert isinstance(sending.exception(), NotSent)
