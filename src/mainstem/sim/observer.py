"""Who looks at what came of a run: everything that can be read, what groups have, what is committed.

After all faults have ended, and past no client: by requests that any client may send. What was seen is kept for the
checkers.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from mainstem.broker.partition import Partition
from mainstem.protocol.errors import ErrorCode
from mainstem.sim import epoch_asker, loiterer, long_poll, own_copier, session_reader
from mainstem.sim.admin import GROUP
from mainstem.sim.checkers.due_goes import wait_until_gone
from mainstem.sim.checkers.flushes_in_time import wait_until_synced
from mainstem.sim.checkers.terms_are_told import batches_of, check_epoch, known_from
from mainstem.sim.checkers.times_are_found import MAX_TIMESTAMP, NOT_FOUND, Answer, first_at, latest
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.group_ledger import GONE
from mainstem.sim.group_members import describe_group, fetch_committed, find_coordinator
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.stable_ends import ask_stable_ends
from mainstem.sim.txn_workload import fetch_committed_records
from mainstem.sim.workloads import Records, find_offset, read_all

if TYPE_CHECKING:
    from mainstem.sim.world import World

GONE_AFTER_S: Final = 20.0
"""Much longer than a session and a rebalance: by then no group has members whose clients are gone."""


class Observer:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.finals: dict[Place, tuple[int, int, Records]] = {}
        """Start, end and records of each partition."""
        self.times: dict[Place, list[Answer]] = {}
        """Where some moments are in each partition, by what a client is told."""
        self.committed: dict[tuple[str, Place], tuple[int, int]] = {}
        """What a client is told, and the last in the log when it asked."""
        self.group_states: dict[str, tuple[str, list[str]]] = {}
        """The state of each group when all its clients were gone for long, and who was still a member of it."""
        self.txn_finals: dict[Place, tuple[int, list[bytes]]] = {}
        """Up to where a reader of committed records has read each partition, and what it was given."""
        self.txn_offsets: dict[str, int] = {}

    async def read_everything(self) -> None:
        client = self.world.observing_client()
        await self.all_visible()
        await self.world.moves.wait_until_over()
        is_transactional = self.world.is_transactional and not self.world.is_for_users
        if is_transactional and long_poll.comes_for_commits(self.world.seed):
            await long_poll.wait_for_commit(self.world, client)
        for topic, (partitions, _) in self.world.topics.items():
            for partition in range(partitions):
                if (topic, partition) in self.world.ledger.damaged:
                    continue
                self.finals[topic, partition] = await read_all(client, (topic, partition))
                if (topic, partition) not in self.world.ledger.mistimed:
                    self.times[topic, partition] = await self._look_up_moments(client, (topic, partition))
        if session_reader.comes(self.world.seed):
            await session_reader.SessionReader(self.world, client, self.finals).run()
        if epoch_asker.comes(self.world.seed):
            await epoch_asker.ask_epochs(self.world, client)
        wanted = {(commit.group, commit.place): None for commit in self.world.groups.commits}
        for group, place in wanted:
            last = self.world.groups.last(group, place)
            found = await self._fetch_committed(client, group, place)
            self.committed[group, place] = (found, GONE if last is None else last.offset)
        if self.world.is_transactional:
            await self.transactions_end()
            await self._read_committed(client)
            await own_copier.check_copies(self.world, client)

    async def _look_up_moments(self, client: SimClient, place: Place) -> list[Answer]:
        broker = self.world.process.broker
        assert broker is not None
        log = broker.partitions.find(*place).log
        checker = self.world.times_are_found
        found: list[Answer] = []
        times = checker.times(log)
        end = log.log_end
        for moment in checker.moments(times, place):
            before = first_at(times, moment)
            with contextlib.suppress(NoAnswer):
                told = await find_offset(client, place, moment)
                if told is not None:
                    offset = told.offset
                    after = before if offset == before else first_at(checker.times(log), moment)
                    if before == NOT_FOUND and after >= end:
                        before = after  # a marker that came meanwhile
                    found.append(Answer(moment, offset, before, after))
                    where = f"{place[0]}-{place[1]}"
                    known = known_from(log, self.world.may_trim(place[0]))
                    if check_epoch(where, batches_of(self.world.disk, log), known, offset, told.leader_epoch):
                        self.world.count("epoch of a moment checked")
        if not self.world.is_keyed(place[0]):
            with contextlib.suppress(NoAnswer):
                before = latest(checker.all_times(log))
                told = await find_offset(client, place, MAX_TIMESTAMP)
                # Retention may have taken it meanwhile, or a marker come that is later.
                if told is not None and latest(checker.all_times(log)) == before:
                    found.append(Answer(MAX_TIMESTAMP, told.offset, before, before))
        return found

    async def _read_committed(self, client: SimClient) -> None:
        broker = self.world.process.broker
        assert broker is not None
        for place in dict.fromkeys(self.world.txn_places):
            values: list[bytes] = []
            partition = broker.partitions.find(*place)
            offset = partition.log.log_start
            # A coordinator may still be about to end what a power loss has torn.
            end = partition.last_stable_offset
            while offset < end:
                try:
                    code, records, after = await fetch_committed_records(client, place, offset)
                except NoAnswer:
                    continue
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and offset < partition.log.log_start:
                    offset = partition.log.log_start
                    continue
                if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.leader is not None:
                    continue  # it was cleaned meanwhile
                if code is not ErrorCode.NONE or after == offset:
                    break
                values += [value for at, value in records if at < end]
                offset = after
            self.txn_finals[place] = (end, values)
        for group in dict.fromkeys(txn.group for txn in self.world.txns.txns if txn.offset is not None):
            self.txn_offsets[group] = await self._fetch_committed(client, group, ("log", 0))

    async def transactions_end(self) -> None:
        """T12, and T7: what is open on a partition would be open for ever if no coordinator knew of it."""
        open_places: list[str] = []
        for _ in range(300):
            broker = self.world.process.broker
            assert broker is not None
            open_places = [str(one) for one in broker.partitions if self._is_open(one)]
            if not open_places:
                return
            await asyncio.sleep(0.1)
        raise Violation("T12 every transaction ends", f"transactions are open on {open_places}, and nobody ends them")

    def _is_open(self, partition: Partition) -> bool:
        """Whether it has a transaction that somebody must end: all but those of which the power loss took the rest.

        Also one whose records are all deleted, which holds nobody up: they may be in the files still (seed 3002756).
        """
        states = partition.log.producers.states
        waiting = [each.producer_id for each in states.all() if each.txn_first_offset >= 0]
        return not all(self.world.may_be_torn(producer_id) for producer_id in waiting)

    async def all_visible(self) -> None:
        """Waits until the high watermarks, which a restart may set back, have caught up."""
        broker = self.world.process.broker
        assert broker is not None
        for _ in range(100):
            behind = [
                each
                for each in broker.partitions
                if each.high_watermark < each.log.log_end and (each.topic, each.index) not in self.world.ledger.damaged
            ]
            if not behind:
                return
            await asyncio.sleep(0.05)
        raise Violation("P12 what is there can be read", f"the high watermarks of {behind} do not reach their ends")

    async def _fetch_committed(self, client: SimClient, group: str, place: Place) -> int:
        for _ in range(100):
            try:
                await find_coordinator(client, group)
                before = self.world.offsets_follow.offset(group, place)
                found = await fetch_committed(client, group, *place)
                if found is not None:
                    self.world.offsets_follow.told(group, place, found, before)
                    return found
            except NoAnswer:
                pass
            await asyncio.sleep(0.1)
        raise Violation("G9 the coordinator answers", f"the offsets of {group} cannot be read")

    async def watch_groups(self) -> None:
        client = self.world.observing_client()
        if self.world.is_transactional:
            await ask_stable_ends(self.world, client)
        if loiterer.comes(self.world.seed) and any(commit.group == GROUP for commit in self.world.groups.commits):
            await loiterer.loiter(self.world, client, GROUP)
        if not self.world.is_for_users:
            for group in self.world.groups.names():
                self.group_states[group] = await self._settled(client, group)
            if long_poll.comes(self.world.seed):
                await long_poll.wait_for_news(self.world, client)
            await wait_until_gone(self.world)
            await wait_until_synced(self.world)
        client.close()

    async def _settled(self, client: SimClient, group: str) -> tuple[str, list[str]]:
        """All members have left, or died: who did not say so is put out when its session is over."""
        state, members = "", list[str]()
        waits_until_s = client.loop.time() + GONE_AFTER_S
        while client.loop.time() < waits_until_s:
            with contextlib.suppress(NoAnswer):
                await find_coordinator(client, group)
                state, members = await describe_group(client, group)
                if state in ("Empty", "Dead"):
                    break
            await asyncio.sleep(0.3)
        return state, members
