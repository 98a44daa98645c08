"""One side of a comparison that asks the same of Kafka and of us, and writes down what each answers.

What two systems cannot share is written alike: producer ids by the order in which a side gave them, times as given or
not, and the words of messages not at all. Lists of answers are sorted: Kafka leaves many orders to a hash table.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mainstem.protocol.fields import Struct
from mainstem.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from mainstem.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from mainstem.protocol.schema import Message
from tests.support.raw import Peer
from tests.support.transactions import TxnClient

M = TypeVar("M", bound=Message)

ANSWER_TIMEOUT_S = 20
OURS_TO_CHOOSE = 900_000
"""Producer ids from here on are made up by a test, the same on both sides."""
_LEFT_OUT = ("throttle_time_ms", "error_message", "topic_id")
_TIMES = ("last_timestamp", "transaction_start_time_ms")


async def until_ready(step: Callable[[], Awaitable[None]]) -> None:
    """Kafka makes its internal topics when they are first asked for, and says that they are not there yet."""
    for _ in range(200):
        try:
            await step()
            return
        except AssertionError:
            await asyncio.sleep(0.1)
    await step()


async def make_topic(peer: Peer, name: str) -> None:
    """Returns when the topic is there and can be written to: Kafka tells of its leader before that leads."""

    async def is_led() -> None:
        await peer.ensure_topic(name)
        wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        answer = await peer.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    await until_ready(is_led)


class Side:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.answers: list[tuple[str, Any]] = []
        self._ids: dict[int, str] = {}

    @classmethod
    async def connect(cls, port: int) -> "Side":
        return cls(Peer(*await asyncio.open_connection("127.0.0.1", port)))

    def note(self, label: str, value: Any) -> None:
        self.answers.append((label, self._plain(value)))

    async def ask(self, label: str, request: Message, version: int, kind: type[M]) -> M:
        answer = await asyncio.wait_for(self.peer.ask(request, version, kind), ANSWER_TIMEOUT_S)
        self.note(f"{label} v{version}", answer)
        return answer

    async def client(self, transactional_id: str, tv2: bool = True) -> TxnClient:
        """A client that has been given its identity."""
        client = TxnClient(self.peer, transactional_id, tv2)
        await until_ready(client.begin)
        return client

    async def topics(self, *names: str) -> None:
        for name in names:
            await make_topic(self.peer, name)

    async def describe(self, label: str, client: TxnClient) -> None:
        found = await client.describe()
        topics = sorted((one.topic, tuple(sorted(one.partitions))) for one in found.topics)
        self.note(f"{label}: state", (found.error_code, found.transaction_state, found.producer_epoch, topics))

    async def producers(self, label: str, *topics: str) -> None:
        """What the first partitions know of their producers."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0]) for name in topics])
        await self.ask(f"{label}: producers", request, 0, DescribeProducersResponse)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Struct):
            names = [name for name in type(value).__slots__ if name not in _LEFT_OUT]
            return {name: self._field(name, getattr(value, name)) for name in names}
        if isinstance(value, list | tuple):
            found = [self._plain(each) for each in value]
            return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
        return int(value) if isinstance(value, int) else value

    def _field(self, name: str, value: Any) -> Any:
        if name == "producer_id" and 0 < value < OURS_TO_CHOOSE:
            return self._ids.setdefault(value, f"id {len(self._ids)}")
        if name in _TIMES:
            return min(value, 1)
        return self._plain(value)


def compare(ports: tuple[int, int], part: Callable[[Side], Awaitable[None]]) -> None:
    """Does the same on Kafka's port and on ours, and fails where an answer differs."""

    async def record(port: int) -> list[tuple[str, Any]]:
        side = await Side.connect(port)
        await part(side)
        side.peer.close()
        return side.answers

    theirs, ours = (asyncio.run(record(port)) for port in ports)
    assert len(theirs) == len(ours) > 0
    different = [f"{them}\n     ours: {us}" for them, us in zip(theirs, ours, strict=True) if them != us]
    assert not different, "\n".join(different)
