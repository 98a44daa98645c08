"""Who reads all partitions at once, in one fetch session (KIP-227), with as few bytes as it likes to ask for.

It comes at the end, when every partition has been read alone, and must be given the same. Nothing of it depends on what
went wrong before: a session lives as long as its broker. Rules that it holds the broker to:

- A partition with something to read is told of sooner or later, however many others there are (P12).
- Who has read on says so once, and is not given the same again; what is not named again is where it was.
- Of a partition that it has forgotten it hears no more.
"""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from mainstem.protocol.records import iterate_records
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.workloads import identity

if TYPE_CHECKING:
    from mainstem.sim.world import World

SHARE: Final = 0.25
_ROUNDS_MAX: Final = 100
_FORGETS: Final = 0.5
_GONE: Final = "P12 a session gets on"

Finals = dict[Place, tuple[int, int, list[tuple[int, bytes | None, bytes]]]]
"""Start, end and records of each partition, as it was read alone."""


def comes(seed: int) -> bool:
    return Random(f"{seed}:session").random() < SHARE


class SessionReader:
    def __init__(self, world: "World", client: SimClient, finals: Finals) -> None:
        self.world = world
        self.client = client
        self._rng = Random(f"{world.seed}:session reader")
        self._finals = finals
        self._offsets = {place: start for place, (start, end, _) in finals.items() if start < end}
        self._given: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in self._offsets}
        self._changed = dict(self._offsets)
        self._forgotten: dict[Place, None] = {}
        self._to_forget: list[Place] = []
        self._session = (0, 0)

    async def run(self) -> None:
        rounds = 0
        # An answer may have no more than one batch, and every second one nothing of what was forgotten.
        rounds_max = _ROUNDS_MAX + 2 * sum(end - start for start, end, _ in self._finals.values())
        while self._unread():
            rounds += 1
            if rounds > rounds_max:
                raise Violation(_GONE, f"{self._unread()} are not read after {rounds} fetches")
            with contextlib.suppress(NoAnswer):
                await self._fetch()
                continue
            self._begin_anew()
            await asyncio.sleep(0.1)
        for place, given in self._given.items():
            self._compare(place, given)

    def _unread(self) -> list[Place]:
        return [place for place, offset in self._offsets.items() if offset < self._finals[place][1]]

    def _begin_anew(self) -> None:
        self._session = (0, 0)
        self._changed = {place: self._offsets[place] for place in self._unread()}
        self._forgotten.clear()
        self._to_forget.clear()

    async def _fetch(self) -> None:
        session_id, epoch = self._session
        size = self._rng.choice((1, 300, 2000))
        # What is wanted of a partition holds until it is named again.
        each_max = self._rng.choice((1, 500, 3000))
        topics = [
            FetchTopic(
                topic=place[0],
                partitions=[FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=each_max)],
            )
            for place, offset in self._changed.items()
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=size,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=[ForgottenTopic(topic=place[0], partitions=[place[1]]) for place in self._to_forget],
        )
        answer = await self.client.ask(request, 12, FetchResponse)
        if answer.error_code != ErrorCode.NONE:
            self.world.count(f"session refused: {ErrorCode(answer.error_code).name}")
            self._begin_anew()
            return
        self._forgotten |= dict.fromkeys(self._to_forget)
        self._to_forget = []
        self._changed = {}
        for topic in answer.responses:
            for found in topic.partitions:
                self._take((topic.topic, found.partition_index), found)
        if answer.session_id == 0:
            self._begin_anew()  # there is no room for another session
        else:
            self._session = (answer.session_id, epoch + 1)
            if epoch > 0:
                self.world.count("fetch in a session")

    def _take(self, place: Place, found: PartitionData) -> None:
        if place in self._forgotten:
            raise Violation("a session forgets", f"{place} was forgotten, and is told of")
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.world.may_trim(place[0]):
            self._leave(place)
            self._given.pop(place, None)
            return
        if found.error_code != ErrorCode.NONE:
            return
        data = bytes(found.records or b"")
        before = offset = self._offsets[place]
        for batch in iterate_batches(data, 0, len(data)):
            if batch.next_offset <= offset:
                raise Violation("nonmonotonic-poll", f"{place}: a session at {offset} was given {batch.base_offset}")
            if not batch.is_control:
                self._given[place] += [
                    (record.offset, identity(record)) for record in iterate_records(batch) if record.offset >= offset
                ]
            offset = batch.next_offset
        if offset == before:
            return
        self._offsets[place] = self._changed[place] = offset
        if offset >= self._finals[place][1] and self._rng.random() < _FORGETS:
            self._leave(place)

    def _leave(self, place: Place) -> None:
        self._offsets.pop(place, None)
        self._changed.pop(place, None)
        self._to_forget.append(place)

    def _compare(self, place: Place, given: list[tuple[int, bytes]]) -> None:
        """Compaction may have taken some of it since it was read alone."""
        start, end, records = self._finals[place]
        wanted = [(offset, value) for offset, _, value in records]
        found = [each for each in given if each[0] < end]
        if found != wanted and not (self.world.is_keyed(place[0]) and all(each in wanted for each in found)):
            missing = [each for each in wanted if each not in found][:3]
            extra = [each for each in found if each not in wanted][:3]
            raise Violation(
                "poll-skip" if missing else "nonmonotonic-poll",
                f"{place}: read in a session from {start} to {end} it lacks {missing} and has {extra} too much",
            )
        self.world.count("partition read in a session")
