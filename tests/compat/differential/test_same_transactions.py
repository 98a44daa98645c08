"""Kafka and our broker answer the same transactional requests with the same codes, states and epochs.

Clients of both transaction versions do random things, late ones among them, by every version of each API and at every
level of `transaction.version`: what they do is drawn once and done on both sides. Requests wait until nothing completes
any more, because how long that takes is a side's own affair.
"""

import asyncio
import os
import random
from dataclasses import replace
from typing import Any

import pytest

from mainstem.core.txn.records import read_record
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from mainstem.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from mainstem.protocol.records import iterate_records
from tests.compat.differential.recorded import make_topic, until_ready
from tests.support.raw import Peer
from tests.support.transactions import TxnClient, committed_offset, find_group, read_committed

pytestmark = [pytest.mark.campaign, pytest.mark.kafka, pytest.mark.timeout(600)]

SEEDS = int(os.environ.get("MAINSTEM_SEEDS", "8"))
STORIES = [(level, seed) for level in (2, 1, 0) for seed in range(SEEDS if level == 2 else (SEEDS + 3) // 4)]
STEPS = 60
LAST_EPOCH = 32766
UPGRADE, SAFE_DOWNGRADE = 1, 2


async def connect(port: int) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", port))


async def set_level(peer: Peer, level: int) -> None:
    """Finalizes a level of `transaction.version`, and waits until clients are told of it."""
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=SAFE_DOWNGRADE)
    if await level_of(peer) < level:
        update.upgrade_type = UPGRADE
    if await level_of(peer) != level:
        answer = await peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse)
        assert answer.error_code == 0, answer
    while await level_of(peer) != level:
        await asyncio.sleep(0.05)


async def level_of(peer: Peer) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await peer.ask(request, 4, ApiVersionsResponse)
    return {one.name: one.max_version_level for one in answer.finalized_features}.get("transaction.version", 0)


# As RE2 takes them, or does not.
PATTERNS = (
    *(None, "", "list-.*", "list", "(", ".*-idle", "(?i)LIST-.*", "[[:alpha:]]+-done", r"\p{L}+-idle", r"\Qlist-\E.*"),
    *(r"list-.*\z", r"list-.*\Z", r"(?=l)list-.*", r"(l)\1ist-.*", "(?P<x>list)-.*", "l*+ist-.*", "list-[a-z&&[do]]+"),
)


class Story:
    """One side's clients of one transactional id: who they are now, and who they were.

    None is of version 2 at level 0: it is refused there, after which Kafka's coordinator never lets the id go on.
    """

    def __init__(self, peer: Peer, name: str, rng: random.Random, level: int) -> None:
        self.peer = peer
        self.level = level
        self.topics = [f"{name}a", f"{name}b"]
        self.group = f"{name}g"
        self.id = f"{name}id"
        self.rng = rng
        self.known: list[TxnClient] = [TxnClient(peer, self.id, tv2=level > 0)]
        self.known[0].pick = rng.randint
        self.first_id: dict[int, int] = {}
        self.number = 0

    async def start(self) -> None:
        for topic in self.topics:
            await make_topic(self.peer, topic)
        await until_ready(lambda: find_group(self.peer, self.group))
        await until_ready(self.known[0].find)
        await until_ready(self._init_works)
        # However often a side had to be asked until it was ready, both draw the same from here on.
        self.rng.seed(self.id)

    async def _init_works(self) -> None:
        assert (await self.known[0].init()).error_code == 0

    async def step(self) -> Any:
        """Does the next thing; what was answered, in words that mean the same on both sides."""
        rng = self.rng
        who = rng.choice(self.known[-4:])
        late = rng.random() < 0.3
        client = who.copy() if late else self.known[-1]
        client.tv2 = rng.random() < 0.6 and self.level > 0
        topic = rng.choice(self.topics)
        self.number += 1
        value = f"{self.number}".encode()
        drawn = rng.randrange(12)
        match drawn:
            case 0:
                # The epoch before the current one is left out: docs/differences.md says what we do not repeat.
                client = rng.choice((self.known[0], self.known[-1])).copy()
                expected = (-1, -1) if rng.random() < 0.5 else (client.producer_id, client.epoch)
                answer = await client.init(rng.choice((60_000, 0)), expected)
                code: Any = ErrorCode(answer.error_code)
                if code is ErrorCode.NONE:
                    self.known.append(client)
            case 1 | 2:
                code = await client.add((topic, 0))
            case 3 | 4 | 5:
                if not client.tv2:
                    await client.add((topic, 0))
                code = await client.send(topic, value)
            case 6:
                code = await client.send(topic, value)
            case 7:
                code = await client.commit_offset(self.group, topic, self.number)
            case 8:
                code = await client.send_offset(self.group, topic, self.number)
            case _:
                before = client.copy()
                code = await client.end(commit=rng.random() < 0.6)
                self.known.append(before)
                self.known.append(client)
        found = await self._settled()
        return drawn, client.tv2, late, code, client.epoch, self._name(client.producer_id), found

    async def _settled(self) -> tuple[Any, ...]:
        await self.known[-1].settled()
        found = await self.known[-1].describe()
        topics = sorted((one.topic, sorted(one.partitions)) for one in found.topics)
        return (
            found.transaction_state,
            found.producer_epoch,
            self._name(found.producer_id),
            found.transaction_timeout_ms,
            topics,
        )

    async def log(self) -> list[Any]:
        """What the coordinator wrote of this id, but for the times."""
        found: list[Any] = []
        offset = 0
        while True:
            data = bytes((await self.peer.fetch("__transaction_state", offset)).records or b"")
            batches = list(iterate_batches(data, 0, len(data)))
            if not batches:
                return found
            for batch in batches:
                for record in () if batch.is_control else iterate_records(batch):
                    assert record.key is not None
                    transactional_id, txn = read_record(record.key, record.value)
                    if transactional_id == self.id and txn is not None and record.value is not None:
                        ids = [txn.producer_id, txn.previous_producer_id, txn.next_producer_id]
                        known = [one if one == -1 else self._name(one) for one in ids]
                        timed = replace(txn, start_ms=min(txn.start_ms, 0), updated_ms=0, partitions=())
                        plain = replace(timed, producer_id=0, previous_producer_id=0, next_producer_id=0)
                        found.append((known, plain, sorted(txn.partitions), record.value[:2], len(record.value)))
            offset = batches[-1].next_offset

    def _name(self, producer_id: int) -> int:
        """Producer ids by the order in which this side gave them."""
        return self.first_id.setdefault(producer_id, len(self.first_id))

    async def content(self) -> list[Any]:
        found: list[Any] = [await read_committed(self.peer, topic) for topic in self.topics]
        for topic in self.topics:
            for stable in (False, True):
                found.append(await committed_offset(self.peer, self.group, topic, require_stable=stable))
        return found


@pytest.mark.parametrize(("level", "seed"), STORIES)
def test_random_clients_get_the_same_answers(level: int, seed: int, ports: tuple[int, int]) -> None:
    async def run() -> None:
        stories = [Story(await connect(port), f"l{level}s{seed}-", random.Random(seed), level) for port in ports]
        for story in stories:
            await set_level(story.peer, level)
            await story.start()
        for number in range(STEPS):
            theirs, ours = [await story.step() for story in stories]
            assert theirs == ours, f"step {number}"
        theirs, ours = [await story.content() for story in stories]
        assert theirs == ours
        theirs, ours = [await story.log() for story in stories]
        assert theirs == ours
        assert theirs
        for story in stories:
            story.peer.close()

    asyncio.run(run())


def test_epochs_end_in_the_same_way(ports: tuple[int, int]) -> None:
    """An id is taken over until one epoch is left; then it is used, ended, and ended again."""

    async def run_on(port: int) -> list[Any]:
        peer = await connect(port)
        await set_level(peer, 2)
        client = TxnClient(peer, "exhausted")
        await make_topic(peer, "t")
        await until_ready(client.find)
        await client.init()
        first = client.producer_id
        request = InitProducerIdRequest(transactional_id=client.transactional_id, transaction_timeout_ms=60_000)
        while client.epoch < LAST_EPOCH:
            ahead = min(50, LAST_EPOCH - client.epoch)
            for _ in range(ahead):
                peer.send(request, 4)
            for _ in range(ahead):
                answer = await peer.receive(InitProducerIdResponse, 4)
                assert answer.error_code == 0
            client.epoch = answer.producer_epoch
        seen: list[Any] = []

        def note(what: object, who: TxnClient) -> None:
            seen.append((what, who.producer_id == first, who.epoch))

        await client.write("t", b"last")
        last = client.copy()
        note(await client.end_and_wait(), client)
        again = last.copy()
        note(await again.end(), again)
        note(await last.copy().end(commit=False), last)
        note(await last.copy().send("t", b"late"), last)
        back = last.copy()
        note((await back.init(expected=(last.producer_id, last.epoch))).error_code, back)
        await client.init()
        await client.write("t", b"next")
        note(await client.end_and_wait(), client)
        seen.append(await read_committed(peer, "t"))
        peer.close()
        return seen

    async def run() -> None:
        theirs, ours = await asyncio.gather(*(run_on(port) for port in ports))
        assert theirs == ours
        assert theirs[-1] == [b"last", b"next"]

    asyncio.run(run())


def test_lists_are_filtered_in_the_same_way(ports: tuple[int, int]) -> None:
    async def run_on(port: int) -> list[Any]:
        peer = await connect(port)
        await set_level(peer, 2)
        await make_topic(peer, "listed")
        clients = [TxnClient(peer, f"list-{name}") for name in ("open", "done", "idle")]
        for client in clients:
            await until_ready(client.find)
            await client.init()
        for client in clients[:2]:
            await client.write("listed", b"x")
        await clients[1].end_and_wait()
        seen: list[Any] = []
        for states in ([], ["Ongoing"], ["CompleteCommit", "Odd"], ["Dead"], ["ongoing"]):
            for duration in (-1, 0, 3_600_000):
                for pattern in PATTERNS:
                    request = ListTransactionsRequest(
                        state_filters=states,
                        producer_id_filters=[],
                        duration_filter=duration,
                        transactional_id_pattern=pattern,
                    )
                    answer = await peer.ask(request, 2, ListTransactionsResponse)
                    mine = sorted(
                        (one.transactional_id, one.transaction_state)
                        for one in answer.transaction_states
                        if one.transactional_id.startswith("list-")
                    )
                    seen.append((states, duration, pattern, answer.error_code, answer.unknown_state_filters, mine))
        peer.close()
        return seen

    async def run() -> None:
        theirs, ours = [await run_on(port) for port in ports]
        assert theirs == ours

    asyncio.run(run())
