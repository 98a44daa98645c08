"""A running broker, and peers that send it anything: requests of every API and version in random order, with values
that mean something here and values that mean nothing, and frames that were damaged on the way.

What must hold: a request is answered by a response that can be read, or ends its own connection; no handler fails by
our own fault; whoever asks beside them is answered soon; and what was acknowledged before is there afterwards.
"""

import asyncio
import contextlib
import logging
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.app import Broker
from mainstem.protocol.api import ApiKey, find_api
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.fields import Field, fields_of
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import Struct
from tests.fuzz.test_wire import mutate
from tests.support.raw import Peer, connect, start_node
from tests.unit.protocol.message_strategies import versions_of

SMOKE_SEEDS = 5
CAMPAIGN_SEEDS = 100
REQUESTS_PER_PEER = 60
PEERS = 6
ANSWER_S_MAX = 20.0
"""Generous: what is looked for is an answer that never comes."""
DAMAGED_ANSWER_S_MAX = 0.2
TOPICS = ["orders", "payments", "events.v1"]
KEPT = [b"kept %d" % i for i in range(10)]

MAY_PARK = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""They wait for others, who may never come."""
LEFT_OUT = (ApiKey.UNREGISTER_BROKER,)
"""It would take this broker out of its own cluster."""

STRINGS = [
    *TOPICS,
    "__consumer_offsets",
    "__transaction_state",
    "group one",
    "group two",
    "transactional",
    "",
    "1",
    "-1",
    "compact",
    "retention.ms",
    "cleanup.policy",
    "max.message.bytes",
    "consumer",
    "range",
    "é" * 70,
    "x" * 300,
    "a/b",
    "..",
]
NUMBERS = [
    0,
    0,
    1,
    1,
    2,
    3,
    5,
    -1,
    -1,
    -2,
    -6,
    7,
    100,
    0x7F,
    0x7FFF,
    0x7FFFFFFF,
    -0x80000000,
    1_700_000_000_000,
    1 << 62,
]


class Draw:
    """Requests, by a seed."""

    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self.rng = random.Random(seed)
        self._topic_ids = topic_ids
        self._member_ids = [""]

    def request(self, cls: type[Struct], version: int) -> Any:
        return self._struct(cls, version)

    def _struct(self, cls: type[Struct], version: int) -> Any:
        present = [field for field in fields_of(cls) if field.in_version(version)]
        return cls(**{field.name: self._value(field, version) for field in present})

    def _value(self, field: Field, version: int) -> Any:
        rng = self.rng
        if not field.spec.required and rng.random() < 0.3:
            return field.spec.make_default()
        if field.nullable_in(version) and rng.random() < 0.1:
            return None
        if field.array:
            return [self._one(field, version) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        return self._one(field, version)

    def _one(self, field: Field, version: int) -> Any:
        rng = self.rng
        if field.struct is not None:
            return self._struct(field.struct, version)
        assert field.kind is not None
        match field.kind.name:
            case "string":
                return rng.choice(STRINGS)
            case "uuid":
                return rng.choice([*self._topic_ids, bytes(16), rng.randbytes(16)])
            case "records":
                return self._records()
            case "bytes":
                return rng.randbytes(rng.choice([0, 4, 150]))
            case "float64":
                return rng.choice([0.0, 1.5, -1.0, 1e300])
            case "bool":
                return rng.random() < 0.5
        if field.name.endswith(("timeout_ms", "wait_ms")):
            return rng.choice([0, 1, 10, 50, 6000 if "session" in field.name else 20, -1])
        bits = 8 * field.kind.size
        low = 0 if field.kind.name.startswith("u") else -(1 << (bits - 1))
        high = (1 << (bits - (0 if low == 0 else 1))) - 1
        return rng.choice([number for number in NUMBERS if low <= number <= high])

    def _records(self) -> bytes:
        rng = self.rng
        producer_id = rng.choice([-1, -1, -1, 0, 1, 1000])
        builder = BatchBuilder(
            codec=rng.randrange(5),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else rng.randrange(2),
            base_sequence=-1 if producer_id < 0 else rng.randrange(3),
            transactional=producer_id >= 0 and rng.random() < 0.5,
        )
        for _ in range(rng.choice([1, 1, 3])):
            key = rng.choice([None, b"key", b""])
            builder.append(rng.choice([0, -1, int(time.time() * 1000)]), key, rng.choice([None, b"value", bytes(2000)]))
        batch = builder.build()
        return rng.choice([batch, batch, batch, mutate(batch, rng), batch + batch, b""])


async def one_peer(node: Broker, listener: str, draw: Draw, requests: int) -> None:
    rng = draw.rng
    routes = [key for key in node.advertised_apis(listener) if key not in LEFT_OUT]
    peer: Peer | None = None
    for _ in range(requests):
        if peer is None:
            peer = Peer(*await asyncio.open_connection("127.0.0.1", node.bound_port(listener)))
        key = rng.choice(routes)
        api = find_api(key)
        low, high = node.advertised_apis(listener)[key]
        version = rng.randint(max(low, versions_of(api.request).start), high)
        frame = encode_request(draw.request(api.request, version), version, 7, rng.choice(["fuzz", ""]))
        damaged = rng.random() < 0.25
        if damaged:
            body = mutate(frame[4:], rng)
            frame = struct.pack(">i", len(body)) + body
        peer.writer.write(frame)
        answered = await answer_or_end(peer, key, version, damaged, frame)
        if not answered or rng.random() < 0.05:
            peer.close()
            peer = None
    if peer is not None:
        peer.close()


async def answer_or_end(peer: Peer, key: int, version: int, damaged: bool, frame: bytes) -> bool:
    """Whether the connection goes on."""
    patience = DAMAGED_ANSWER_S_MAX if damaged or key in MAY_PARK or key == ApiKey.PRODUCE else ANSWER_S_MAX
    try:
        async with asyncio.timeout(patience):
            (size,) = struct.unpack(">i", await peer.reader.readexactly(4))
            data = await peer.reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    except TimeoutError:
        # Without acknowledgement there is no answer, and what was damaged may say so, or be a part of a frame.
        assert damaged or key in MAY_PARK or key == ApiKey.PRODUCE, f"{ApiKey(key).name} v{version}: {frame.hex()}"
        return False
    if not damaged:
        correlation_id, _ = decode_response(data, key, version)
        assert correlation_id == 7
    return True


async def bystander(node: Broker) -> None:
    """Somebody else, who is to notice nothing."""
    peer = await connect(node)
    try:
        while True:
            async with asyncio.timeout(ANSWER_S_MAX):
                await peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            await asyncio.sleep(0.02)
    finally:
        peer.close()


def fuzz(path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    unhandled: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        node = await start_node(path, offsets_topic_num_partitions="2", transaction_state_log_num_partitions="2")
        peer = await connect(node)
        for topic in (*TOPICS, "kept"):
            await peer.ensure_topic(topic)
        for value in KEPT:
            await peer.produce("kept", value)
        beside = asyncio.create_task(bystander(node))
        topic_ids = [node.image.topics[topic].topic_id for topic in TOPICS]
        listeners = ["PLAINTEXT"] * PEERS + ["CONTROLLER"]
        await asyncio.gather(
            *(
                one_peer(node, listener, Draw(seed * len(listeners) + i, topic_ids), REQUESTS_PER_PEER)
                for i, listener in enumerate(listeners)
            )
        )
        assert not beside.done(), beside.exception()
        beside.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beside
        peer.close()
        await node.stop()
        again = await start_node(path)
        peer = await connect(again)
        found = await peer.fetch("kept", 0)
        assert found.high_watermark == len(KEPT)
        assert all(value in (found.records or b"") for value in KEPT)
        peer.close()
        await again.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    failed = [
        f"{record.message} {record.exc_text or ''}" for record in caplog.records if record.levelno >= logging.ERROR
    ]
    assert not failed, f"seed {seed}: {failed[0]}"
    assert not unhandled, f"seed {seed}: {unhandled[0]}"


@pytest.mark.parametrize("seed", range(SMOKE_SEEDS))
def test_whatever_peers_send_the_broker_goes_on(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(tmp_path, seed, caplog)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SMOKE_SEEDS, SMOKE_SEEDS + CAMPAIGN_SEEDS))
def test_whatever_peers_send_campaign(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(tmp_path, seed, caplog)
