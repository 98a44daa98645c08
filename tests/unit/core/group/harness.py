"""Drives a GroupMachine as the runtime does, with a list for a log and numbers for time; no event loop."""

from __future__ import annotations

import itertools
import struct

from mainstem.core.coordinator.effects import ArmTimer, CancelTimer, LogRecord, Outcome, Refuse, Reply, TimerKey
from mainstem.core.group.classic import EMPTY, PREPARING_REBALANCE, STABLE, TRANSITIONS, ClassicGroup
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.machine import GroupMachine
from mainstem.core.group.offsets import CommitBy, FetchedOffset, NewOffset, WantedTopic
from mainstem.core.group.rebalance import Caller
from mainstem.core.group.store import GroupStore
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.group_records import GroupMetadataValue
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from mainstem.protocol.messages.k15_describe_groups import DescribedGroup
from mainstem.protocol.messages.k16_list_groups import ListedGroup
from mainstem.protocol.primitives import ZERO_UUID

START_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself when it joins: ConsumerProtocolSubscription version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Answer:
    """A ticket: what was answered, once it is."""

    def __init__(self) -> None:
        self.response: object | None = None

    @property
    def done(self) -> bool:
        return self.response is not None

    @property
    def joined(self) -> JoinGroupResponse:
        assert isinstance(self.response, JoinGroupResponse), self.response
        return self.response

    @property
    def synced(self) -> SyncGroupResponse:
        assert isinstance(self.response, SyncGroupResponse), self.response
        return self.response

    @property
    def code(self) -> ErrorCode:
        if isinstance(self.response, ErrorCode):
            return self.response
        assert isinstance(self.response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse), self.response
        return ErrorCode(self.response.error_code)


def snapshot(store: GroupStore) -> object:
    """Everything that must survive, in a form to compare."""
    return (
        {g: repr(v) for g, v in sorted(store.metadata.items())},
        {g: {k: v.value() for k, v in sorted(o.items())} for g, o in sorted(store.offsets.items())},
        {g: dict(sorted(o.items())) for g, o in sorted(store.others.items())},
    )


class Harness:
    def __init__(self, log: list[LogRecord] | None = None, now_ms: int = START_MS, **config: int) -> None:
        self.settings = {"initial_rebalance_delay_ms": 0, **config}
        self.machine = GroupMachine(GroupConfig(**self.settings))
        self.log: list[LogRecord] = [] if log is None else log
        self.timers: dict[TimerKey, int] = {}
        self.now_ms = now_ms
        self.fail_with: ErrorCode | None = None
        self.held: list[Outcome] | None = None
        """Outcomes written and not yet committed, while commits are held back."""
        self._ids = itertools.count(1)
        self._replayed = GroupStore()
        self._replayed_to = 0
        for record in self.log:
            self.machine.replay(record.key, record.value)
        self.machine.keep()
        self.take(self.machine.loaded(now_ms))

    def restart(self) -> Harness:
        """Another coordinator takes over with nothing but the log."""
        other = Harness(list(self.log), self.now_ms, **self.settings)
        other._ids = self._ids
        return other

    # What the runtime does

    def take(self, outcome: Outcome) -> None:
        for effect in outcome.effects:
            if isinstance(effect, ArmTimer):
                self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
        for record in outcome.records:
            self.machine.replay(record.key, record.value)
        if outcome.records and self.fail_with is not None:
            self.machine.revert()
            self._release(outcome, self.fail_with)
            return
        self.log += outcome.records
        self.machine.keep()
        if self.held is not None:
            self.held.append(outcome)
        else:
            self._release(outcome, ErrorCode.NONE)

    def commit_held(self) -> None:
        held, self.held = self.held or [], None
        for outcome in held:
            self._release(outcome, ErrorCode.NONE)

    def _release(self, outcome: Outcome, error: ErrorCode) -> None:
        for effect in outcome.effects:
            if isinstance(effect, Reply | Refuse):
                answer = effect.ticket
                assert isinstance(answer, Answer)
                assert answer.response is None, "answered twice"
                answer.response = effect.response if isinstance(effect, Reply) else effect.code
                if error is not ErrorCode.NONE:
                    answer.response = error
        if outcome.token is not None:
            self.take(self.machine.written(outcome.token, error, self.now_ms))

    def advance(self, by_ms: int) -> None:
        """Lets time pass, firing timers in order."""
        until = self.now_ms + by_ms
        while self.timers:
            key = min(self.timers, key=self.timers.__getitem__)
            if self.timers[key] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.take(self.machine.timer_fired(key, self.now_ms))
        self.now_ms = until

    # Requests

    def join(
        self,
        group: str,
        member: str = "",
        *,
        instance: str | None = None,
        version: int = 9,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        client: str = "c",
    ) -> Answer:
        answer = Answer()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in ({"range": subscription("t")} if protocols is None else protocols).items()
            ],
        )
        caller = Caller(client, "/127.0.0.1", version, f"id{next(self._ids)}")
        self.take(self.machine.join(answer, caller, request, self.now_ms))
        return answer

    def enter(self, group: str, **options: object) -> tuple[str, Answer]:
        """Joins as a client does: asks for an id, then comes with it."""
        required = self.join(group, **options)  # type: ignore[arg-type]
        assert required.code is ErrorCode.MEMBER_ID_REQUIRED
        member = required.joined.member_id
        return member, self.join(group, member, **options)  # type: ignore[arg-type]

    def sync(
        self,
        group: str,
        generation: int,
        member: str,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Answer:
        answer = Answer()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        self.take(self.machine.sync(answer, request, self.now_ms))
        return answer

    def heartbeat(self, group: str, generation: int, member: str, instance: str | None = None) -> ErrorCode:
        answer = Answer()
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        self.take(self.machine.heartbeat(answer, request, self.now_ms))
        assert isinstance(answer.response, HeartbeatResponse)
        return answer.code

    def leave(self, group: str, *members: tuple[str, str | None]) -> list[ErrorCode]:
        answer = Answer()
        request = LeaveGroupRequest(
            group_id=group, members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        )
        self.take(self.machine.leave(answer, request, self.now_ms))
        response = answer.response
        if isinstance(response, ErrorCode):
            return [response] * len(members)
        assert isinstance(response, LeaveGroupResponse)
        return [ErrorCode(m.error_code) for m in response.members]

    def commit(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        metadata: str = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 9,
    ) -> Answer:
        answer = Answer()
        by = CommitBy(group, generation, member, instance, version, retention_ms)
        new = [NewOffset(t, ZERO_UUID, p, offset, leader_epoch, metadata) for (t, p), offset in offsets.items()]
        try:
            self.take(self.machine.commit_offsets(answer, by, new, self.now_ms))
        except RemoteError as error:
            answer.response = error.code
            return answer
        if isinstance(answer.response, list):
            assert len(answer.response) == len(new)
            answer.response = next((code for code in answer.response if code), ErrorCode.NONE)
        return answer

    def fetch(self, group: str, *places: tuple[str, int], require_stable: bool = False) -> dict[tuple[str, int], int]:
        """Offsets by place; -1 where there is none, the negated code where there is an error."""
        answer = Answer()
        wanted = [WantedTopic(t, ZERO_UUID, (p,)) for t, p in places] if places else None
        self.take(self.machine.fetch_offsets(answer, group, wanted, require_stable))
        found = answer.response
        assert isinstance(found, list)
        result = {}
        for item in found:
            assert isinstance(item, FetchedOffset)
            value = -1 if item.committed is None else item.committed.offset
            result[(item.topic, item.partition)] = -int(item.error) if item.error else value
        return result

    def delete_group(self, group: str) -> ErrorCode:
        answer = Answer()
        self.take(self.machine.delete_group(answer, group, self.now_ms))
        return answer.code

    def delete_offsets(self, group: str, *places: tuple[str, int]) -> list[ErrorCode] | ErrorCode:
        answer = Answer()
        try:
            self.take(self.machine.delete_offsets(answer, group, places))
        except RemoteError as error:
            return error.code
        assert isinstance(answer.response, list)
        return answer.response

    def describe(self, group: str, version: int = 6) -> DescribedGroup:
        answer = Answer()
        self.take(self.machine.describe(answer, group, version))
        assert isinstance(answer.response, DescribedGroup)
        return answer.response

    def list_groups(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, ListedGroup]:
        answer = Answer()
        self.take(self.machine.list_groups(answer, states, types))
        assert isinstance(answer.response, list)
        return {listed.group_id: listed for listed in answer.response}

    def state(self, group: str) -> str:
        return self.describe(group).group_state

    # Whole stories

    def stable(self, group: str, count: int = 1, **options: object) -> list[str]:
        """A stable group of `count` members, the leader first; each is assigned its own number."""
        members = []
        answers = []
        for _ in range(count):
            member, answer = self.enter(group, **options)
            members.append(member)
            answers.append(answer)
            self.advance(0)
            if len(members) > 1:
                generation = self.machine.groups[group].generation
                for at, earlier in enumerate(members[:-1]):
                    if answers[at].done:
                        answers[at] = self.join(group, earlier, **options)  # type: ignore[arg-type]
                assert generation <= self.machine.groups[group].generation
        generation = self.machine.groups[group].generation
        leader = self.machine.groups[group].leader
        assert leader is not None
        for member in members:
            if member != leader:
                self.sync(group, generation, member)
        self.sync(group, generation, leader, {m: str(at).encode() for at, m in enumerate(members)})
        assert self.state(group) == "Stable"
        return [leader, *(m for m in members if m != leader)]

    # What must hold

    def check(self) -> None:
        """G5 and G6, and that the books of each group agree, after any step."""
        for record in self.log[self._replayed_to :]:
            self._replayed.replay(record.key, record.value)
        self._replayed.keep()
        self._replayed_to = len(self.log)
        assert snapshot(self.machine.store) == snapshot(self._replayed), "live state is not what the log says"
        for group in self.machine.groups.values():
            self._check_group(group)

    def _check_group(self, group: ClassicGroup) -> None:
        members = group.members
        assert group.state in TRANSITIONS
        assert (group.leader in members) if members else group.leader is None, group
        assert group.awaiting_join == sum(m.join_ticket is not None for m in members.values())
        assert {m.instance_id: m.member_id for m in members.values() if m.instance_id} == group.static_members
        assert not members.keys() & group.pending_joins.keys()
        assert group.pending_syncs.keys() <= members.keys()
        if group.state is EMPTY:
            assert not members
        for member in members.values():
            waits = member.join_ticket is not None or member.sync_ticket is not None
            timer = ("heartbeat", group.group_id, member.member_id) in self.timers
            assert waits or timer, f"nobody watches {member}"
        if group.state is PREPARING_REBALANCE:
            assert ("join", group.group_id) in self.timers, f"{group} may wait for ever"
        if group.pending_syncs and group.state is not PREPARING_REBALANCE:
            assert ("sync", group.group_id) in self.timers, f"{group} may wait for ever"
        if group.state is STABLE and self.fail_with is None and not self.held:
            saved = self.machine.store.metadata[group.group_id]
            assert isinstance(saved, GroupMetadataValue)
            assert saved.generation == group.generation
            assert {m.member_id: (m.group_instance_id, m.assignment) for m in saved.members} == {
                m.member_id: (m.instance_id, m.assignment) for m in members.values()
            }
