"""Many members, random requests, delays, lost writes and new coordinators; what must hold is checked at every step."""

from __future__ import annotations

import random

import pytest

from mainstem.core.coordinator.effects import LogRecord
from mainstem.core.group.classic import EMPTY, PREPARING_REBALANCE, STABLE, ClassicGroup
from mainstem.core.group.store import GroupStore
from mainstem.protocol.errors import ErrorCode

from .harness import Answer, Harness, snapshot, subscription

GROUPS = ("a", "b")
STEPS = 400


class Client:
    """One consumer: what it believes, and what it waits for."""

    def __init__(self, group: str, instance: str | None, version: int) -> None:
        self.group = group
        self.instance = instance
        self.version = version
        self.member = ""
        self.generation = -1
        self.is_leader = False
        self.peers: list[str] = []
        self.joining: Answer | None = None
        self.syncing: Answer | None = None
        self.synced_generation = -1


class Crowd:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.h = Harness(initial_rebalance_delay_ms=self.rng.choice((0, 3000)), size_max=self.rng.choice((3, 100)))
        self.clients = [
            Client(
                self.rng.choice(GROUPS),
                self.rng.choice((None, None, "i1", "i2")),
                self.rng.choice((3, 5, 8, 9)),
            )
            for _ in range(6)
        ]
        self.acked: dict[tuple[str, tuple[str, int]], int] = {}
        """Offsets whose commit was acknowledged (G4)."""
        self.next_offset = 0

    def step(self) -> None:
        rng = self.rng
        client = rng.choice(self.clients)
        choice = rng.randrange(100)
        if choice < 30:
            self.join(client)
        elif choice < 50:
            self.sync(client)
        elif choice < 60:
            self.heartbeat(client)
        elif choice < 75:
            self.commit(client)
        elif choice < 80:
            self.leave(client)
        elif choice < 92:
            self.h.advance(rng.choice((0, 1, 100, 3_000, 6_000, 31_000)))
        elif choice < 94:
            self.h = self.h.restart()
            for each in self.clients:
                each.joining = each.syncing = None
        elif choice < 96:
            self.h.fail_with = None if self.h.fail_with else ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            self.forget(client)
        self.collect()
        self.check()

    def forget(self, client: Client) -> None:
        """The process died and starts anew."""
        client.member = ""
        client.synced_generation = -1
        client.joining = client.syncing = None
        client.generation = -1

    def join(self, client: Client) -> None:
        if client.joining is not None:
            return
        topics = self.rng.choice((("t",), ("t", "u")))
        client.joining = self.h.join(
            client.group,
            client.member,
            instance=client.instance if client.version >= 5 else None,
            version=client.version,
            protocols={"range": subscription(*topics)},
        )

    def sync(self, client: Client) -> None:
        if client.generation < 0 or client.syncing is not None or client.joining is not None:
            return
        given = {peer: f"{client.generation}/{peer}".encode() for peer in client.peers} if client.is_leader else None
        client.syncing = self.h.sync(client.group, client.generation, client.member, given, self.instance(client))

    def instance(self, client: Client) -> str | None:
        return client.instance if client.version >= 5 else None

    def heartbeat(self, client: Client) -> None:
        code = self.h.heartbeat(client.group, client.generation, client.member, self.instance(client))
        if code is ErrorCode.NONE:
            group = self.h.machine.groups[client.group]
            assert group.generation == client.generation, "G5: a stale generation was taken for the current one"

    def commit(self, client: Client) -> None:
        self.next_offset += 1
        place = (self.rng.choice(("t", "u")), self.rng.randrange(2))
        group = self.h.machine.groups.get(client.group)
        legitimate = (
            group is not None
            and group.state in (STABLE, PREPARING_REBALANCE)
            and client.member in group.members
            and group.generation == client.generation
        )
        code = self.h.commit(
            client.group, {place: self.next_offset}, client.generation, client.member, self.instance(client)
        ).code
        if code is ErrorCode.NONE:
            self.acked[client.group, place] = self.next_offset
            assert legitimate or client.generation < 0, "G5: a stale commit was taken"
        elif legitimate:
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.FENCED_INSTANCE_ID), f"G5: {code.name}"

    def leave(self, client: Client) -> None:
        self.h.leave(client.group, (client.member, self.instance(client)))
        self.forget(client)

    def collect(self) -> None:
        """Clients read the answers they have."""
        for client in self.clients:
            joining, syncing = client.joining, client.syncing
            if joining is not None and joining.done:
                client.joining = None
                if joining.code is ErrorCode.NONE:
                    answer = joining.joined
                    client.member, client.generation = answer.member_id, answer.generation_id
                    client.is_leader = answer.leader == answer.member_id and not answer.skip_assignment
                    client.peers = [member.member_id for member in answer.members]
                    assert client.peers or answer.leader != answer.member_id, "a leader must know its members"
                elif joining.code is ErrorCode.MEMBER_ID_REQUIRED:
                    client.member = joining.joined.member_id
                elif joining.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self.forget(client)
            if syncing is not None and syncing.done:
                client.syncing = None
                if syncing.code is ErrorCode.NONE:
                    client.synced_generation = client.generation

    def check(self) -> None:
        self.h.check()
        for group_id, group in self.h.machine.groups.items():
            self.check_group(group_id, group)
        for (group_id, place), offset in self.acked.items():
            held = self.h.machine.store.offsets_of(group_id).get(place)
            assert held is not None, "G4: an acknowledged offset is gone"
            assert held.offset == offset, "G4"

    def check_group(self, group_id: str, group: ClassicGroup) -> None:
        if group.state is STABLE:
            parts = [m.assignment for m in group.members.values() if m.assignment]
            assert len(parts) == len(set(parts)), "G1: two members own the same"
        if group.state is EMPTY:
            assert not group.members


@pytest.mark.parametrize("seed", range(60))
def test_random_groups_keep_their_promises(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()


@pytest.mark.parametrize("seed", range(20))
def test_groups_come_to_rest_when_their_members_behave(seed: int) -> None:
    """G9: after any history, members that join, sync and heartbeat become a stable group; none waits for ever."""
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()
    h = crowd.h
    h.fail_with = None
    for client in crowd.clients:
        client.instance = None
        crowd.forget(client)
    for _ in range(200):
        for client in crowd.clients[:3]:
            group = h.machine.groups.get(client.group)
            is_current = group is not None and group.generation == client.generation >= 0
            if group is None or not is_current or group.state is PREPARING_REBALANCE:
                crowd.join(client)
            elif client.synced_generation != client.generation:
                crowd.sync(client)
            else:
                crowd.heartbeat(client)
        h.advance(1_000)
        crowd.collect()
        crowd.h.check()
    for group_id in {client.group for client in crowd.clients[:3]}:
        assert h.state(group_id) == "Stable", h.machine.groups[group_id]
    for client in crowd.clients[3:]:
        if client.group not in {each.group for each in crowd.clients[:3]} and client.group in h.machine.groups:
            assert h.state(client.group) == "Empty"


@pytest.mark.parametrize("seed", range(30))
def test_a_compacted_log_replays_to_the_same_state(seed: int) -> None:
    """G6: any older value of a key may be gone, and any tombstone that nothing came before."""
    crowd = Crowd(seed)
    for _ in range(STEPS // 2):
        crowd.step()
        if crowd.rng.random() < 0.02:
            group = crowd.rng.choice(GROUPS)
            if crowd.h.delete_group(group) is ErrorCode.NONE:
                crowd.acked = {key: offset for key, offset in crowd.acked.items() if key[0] != group}
    log = crowd.h.log
    expected = snapshot(crowd.h.machine.store)
    for _ in range(20):
        assert snapshot(replayed(compacted(log, crowd.rng))) == expected


def compacted(log: list[LogRecord], rng: random.Random) -> list[LogRecord]:
    """A prefix cleaned, as the cleaner does: of each key only the last is kept there; some tombstones go as well."""
    until = rng.randrange(len(log) + 1)
    latest = {record.key: at for at, record in enumerate(log[:until])}
    kept = []
    for at, record in enumerate(log):
        if at < until and (latest[record.key] != at or (record.value is None and rng.random() < 0.5)):
            continue
        kept.append(record)
    return kept


def replayed(log: list[LogRecord]) -> GroupStore:
    store = GroupStore()
    for record in log:
        store.replay(record.key, record.value)
    return store
