"""How the members of a classic group come to a generation: join, sync, heartbeat, leave, and the timers between.

A rebalance: the first to join a group that is Empty, or any change in a Stable one, makes it PreparingRebalance.
Everyone joins again and waits; when all have, or the rebalance timeout is over, a new generation begins, whose leader
is told all members and sends the assignment with its SyncGroup. That assignment is written, and when the record is
committed every member that syncs gets its part (G8) and the group is Stable.

Timers, by key:
- ("heartbeat", group, member): the session of a member, of one that has not joined yet (its id was only given out),
  or of a new one whose join takes too long;
- ("join", group): the end of a preparation, or one more delay of a first one (KIP-134);
- ("sync", group): members that were told of a generation and do not sync are removed (KAFKA-12890).

What waits for a record continues in `written`, with one of the tokens below. A record that could not be written takes
back what was made on the strength of it: a new group goes, a replaced static member comes back, an assignment is
dropped and the group prepares again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mainstem.core.coordinator.effects import ArmTimer, CancelTimer, LogRecord, Outcome, Ticket, TimerKey
from mainstem.core.group import records
from mainstem.core.group.classic import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    UNKNOWN_MEMBER,
    ClassicGroup,
    Member,
    Protocols,
)
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.store import SHARE, GroupStore
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.group_records import GroupMetadataValue
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

HEARTBEAT: Final = "heartbeat"
JOIN: Final = "join"
SYNC: Final = "sync"

MEMBER_ID_REQUIRED_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Caller:
    """Who joins: the client's name and address, the version of its request, and an id nobody else has."""

    client_id: str
    client_host: str
    api_version: int
    fresh_id: str


@dataclass(frozen=True, slots=True)
class GroupCreated:
    group: ClassicGroup


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    group: ClassicGroup
    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    group: ClassicGroup
    member: Member
    old_member_id: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    ticket: Ticket
    reply: JoinGroupResponse


def join_error(code: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None,
        leader=UNKNOWN_MEMBER,
        member_id=member_id,
        members=[],
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


class Rebalancing:
    """The groups of one coordinator as they live, and the rules of their membership."""

    def __init__(self, config: GroupConfig, store: GroupStore) -> None:
        self.config = config
        self.store = store
        self.groups: dict[str, ClassicGroup] = {}
        self.now_ms = 0

    # Join

    def join(self, ticket: Ticket, caller: Caller, request: JoinGroupRequest, now_ms: int) -> Outcome:
        self.now_ms = now_ms
        out = Outcome()
        member_id = request.member_id
        if not request.group_id:
            return out.reply(ticket, join_error(ErrorCode.INVALID_GROUP_ID, member_id))
        config = self.config
        if not config.session_timeout_min_ms <= request.session_timeout_ms <= config.session_timeout_max_ms:
            return out.reply(ticket, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
        is_unknown = member_id == UNKNOWN_MEMBER
        group = self.groups.get(request.group_id)
        created = False
        if group is None:
            other = self.store.other_type(request.group_id)
            if other == SHARE:
                return out.reply(ticket, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            if not is_unknown:
                return out.reply(ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            group = self._create(request.group_id, other, out)
            created = True
        if not self._accepts(group, member_id):
            group.remove(member_id)
            out.effects.append(CancelTimer((HEARTBEAT, group.group_id, member_id)))
            out.reply(ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif is_unknown:
            self._join_new(out, group, ticket, caller, request)
        else:
            self._join_known(out, group, ticket, caller, request)
        if created:
            self._write_creation(out, group)
        return out

    def _create(self, group_id: str, other: str | None, out: Outcome) -> ClassicGroup:
        """A new group; one of another protocol that has no members here gives way to it."""
        if other is not None:
            out.records += [LogRecord(key, None) for key in self.store.others[group_id]]
            out.note("converted a group to the classic protocol", group=group_id, protocol=other)
        group = self.groups[group_id] = ClassicGroup(group_id, self.now_ms)
        return group

    def _write_creation(self, out: Outcome, group: ClassicGroup) -> None:
        """A new group is written before anyone is told of it, so that a failover knows the ids it gave out."""
        out.records.append(
            records.group_metadata(
                group.group_id,
                GroupMetadataValue(
                    protocol_type="",
                    generation=0,
                    protocol=None,
                    leader=None,
                    current_state_timestamp=group.state_timestamp_ms,
                    members=[],
                ),
            )
        )
        out.token = GroupCreated(group)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether there is room. While members join again, those that have joined count, not those that may not."""
        size_max = self.config.size_max
        match group.state:
            case state if state in (EMPTY, DEAD):
                return True
            case state if state is PREPARING_REBALANCE:
                member = group.members.get(member_id)
                return (member is not None and member.join_ticket is not None) or group.awaiting_join < size_max
            case _:
                return member_id in group.members or len(group.members) < size_max

    def _join_new(
        self, out: Outcome, group: ClassicGroup, ticket: Ticket, caller: Caller, request: JoinGroupRequest
    ) -> None:
        protocols = _protocols(request)
        if not group.supports(request.protocol_type, protocols):
            out.reply(ticket, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{caller.fresh_id}"
        if instance_id is not None:
            replaced = group.static_members.get(instance_id)
            if replaced is None:
                self._add(out, group, ticket, caller, request, member_id)
            else:
                self._replace_static(out, group, ticket, caller, request, replaced, member_id)
        elif caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            # The client must come back with the id (KIP-394), so that a lost answer leaves no member nobody is.
            group.pending_joins[member_id] = None
            out.effects.append(ArmTimer((HEARTBEAT, group.group_id, member_id), request.session_timeout_ms))
            out.reply(ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(out, group, ticket, caller, request, member_id)

    def _join_known(
        self, out: Outcome, group: ClassicGroup, ticket: Ticket, caller: Caller, request: JoinGroupRequest
    ) -> None:
        member_id = request.member_id
        protocols = _protocols(request)
        if not group.supports(request.protocol_type, protocols):
            out.reply(ticket, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                out.reply(ticket, join_error(ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                self._add(out, group, ticket, caller, request, member_id)
            return
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except RemoteError as error:
            out.reply(ticket, join_error(error.code, member_id))
            return
        is_leader = group.leader == member_id
        unchanged = member.protocols == protocols
        if unchanged and (group.state is COMPLETING_REBALANCE or (group.state is STABLE and not is_leader)):
            # It may not have had the answer to its last join: the generation as it is.
            out.reply(ticket, self._joined(group, member_id, with_members=True))
        else:
            # A leader that joins again wants a rebalance, for reasons that its metadata need not show.
            self._update(out, group, member, protocols, request, ticket)
            self._rebalance_or_complete(out, group, f"member {member_id} joined again{_client_reason(request.reason)}")

    def _add(
        self,
        out: Outcome,
        group: ClassicGroup,
        ticket: Ticket,
        caller: Caller,
        request: JoinGroupRequest,
        member_id: str,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            _rebalance_timeout(request),
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type, ticket)
        # It has no id to heartbeat with until it is answered, and a client that went away would stay for ever.
        out.effects.append(ArmTimer((HEARTBEAT, group.group_id, member_id), self.config.new_member_join_timeout_ms))
        self._rebalance_or_complete(out, group, f"member {member_id} joined{_client_reason(request.reason)}")

    def _update(
        self,
        out: Outcome,
        group: ClassicGroup,
        member: Member,
        protocols: Protocols,
        request: JoinGroupRequest,
        ticket: Ticket,
    ) -> None:
        earlier = group.update(member, protocols, _rebalance_timeout(request), request.session_timeout_ms, ticket)
        if earlier is not None:
            # The same member asks again, on a new connection: whoever waits on the old one is told to join again.
            out.reply(earlier, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static(
        self,
        out: Outcome,
        group: ClassicGroup,
        ticket: Ticket,
        caller: Caller,
        request: JoinGroupRequest,
        old_id: str,
        new_id: str,
    ) -> None:
        """A static member came back: it keeps its place, and whoever used its instance id is fenced (KIP-345)."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_leader = group.leader or UNKNOWN_MEMBER
        member = group.members[old_id]
        fenced_join = group.take_join_ticket(member)
        if fenced_join is not None:
            out.reply(fenced_join, join_error(ErrorCode.FENCED_INSTANCE_ID, old_id))
        if member.sync_ticket is not None:
            out.reply(member.sync_ticket, sync_error(ErrorCode.FENCED_INSTANCE_ID))
            member.sync_ticket = None
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.replace_static(instance_id, old_id, new_id)
        out.effects.append(CancelTimer((HEARTBEAT, group.group_id, old_id)))
        group.update(member, _protocols(request), _rebalance_timeout(request), request.session_timeout_ms, ticket)
        self._expect_heartbeat(out, group, member)
        if group.state is STABLE and group.select_protocol() == group.protocol:
            # Nothing changes for the others. The new id is written before it is told to anyone (KAFKA-10284).
            out.records.append(
                records.group_metadata(
                    group.group_id, group.to_value({m.member_id: m.assignment for m in group.members.values()})
                )
            )
            if caller.api_version >= SKIP_ASSIGNMENT_SINCE:
                reply = self._joined(group, new_id, with_members=True)
                reply.skip_assignment = group.leader == new_id
            else:
                # A leader that cannot skip the assignment must not take itself for one (KIP-814).
                reply = self._joined(group, new_id, with_members=False)
                reply.leader = old_leader
            out.token = StaticMemberStored(group, member, old_id, *before, ticket, reply)
        elif group.state in (STABLE, COMPLETING_REBALANCE):
            # The leader may have assigned to the old id, which is nobody now.
            self._prepare(out, group, f"static member {instance_id} came back as {new_id}")
        else:
            self._maybe_complete(out, group)

    def _joined(self, group: ClassicGroup, member_id: str, with_members: bool) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or UNKNOWN_MEMBER,
            member_id=member_id,
            members=group.described_members() if with_members and group.leader == member_id else [],
        )

    # The way to the next generation

    def _rebalance_or_complete(self, out: Outcome, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self._prepare(out, group, reason)
        else:
            self._maybe_complete(out, group)

    def _prepare(self, out: Outcome, group: ClassicGroup, reason: str) -> None:
        if group.state is COMPLETING_REBALANCE:
            self._drop_assignments(out, group, ErrorCode.REBALANCE_IN_PROGRESS)
        out.effects.append(CancelTimer((SYNC, group.group_id)))
        is_first = group.state is EMPTY
        out.note("rebalancing a group", group=group.group_id, generation=group.generation, reason=reason)
        group.transition(PREPARING_REBALANCE, self.now_ms)
        if is_first:
            # Others will join shortly: wait, and longer as long as they do, so that there is one rebalance and not one
            # for each of them (KIP-134).
            delay = self.config.initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_delay_ms = delay
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
            out.effects.append(ArmTimer((JOIN, group.group_id), delay))
        elif group.all_joined:
            self._complete(out, group)
        else:
            out.effects.append(ArmTimer((JOIN, group.group_id), group.rebalance_timeout_ms))

    def _maybe_complete(self, out: Outcome, group: ClassicGroup) -> None:
        if group.state is PREPARING_REBALANCE and group.all_joined and group.previous_state is not EMPTY:
            self._complete(out, group)

    def _join_time_is_up(self, out: Outcome, group: ClassicGroup) -> None:
        if group.state is not PREPARING_REBALANCE:
            return
        if group.previous_state is EMPTY and group.new_member_added and group.initial_remaining_ms != 0:
            group.new_member_added = False
            delay = min(self.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay
            out.effects.append(ArmTimer((JOIN, group.group_id), delay))
        else:
            self._complete(out, group)

    def _complete(self, out: Outcome, group: ClassicGroup) -> None:
        """Begins the next generation with those who have joined; the others are out, unless they are static."""
        out.effects.append(CancelTimer((JOIN, group.group_id)))
        for member in group.not_yet_joined():
            if member.instance_id is None:
                group.remove(member.member_id)
                out.effects.append(CancelTimer((HEARTBEAT, group.group_id, member.member_id)))
        if group.members and not group.elect_joined_leader():
            # Only static members, and none has joined again: their sessions decide.
            out.effects.append(ArmTimer((JOIN, group.group_id), group.rebalance_timeout_ms))
            return
        group.next_generation(self.now_ms)
        if group.state is EMPTY:
            out.note("a group is empty", group=group.group_id, generation=group.generation)
            out.records.append(records.group_metadata(group.group_id, group.to_value({})))
            return
        out.note(
            "a group has a new generation",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            protocol=group.protocol,
        )
        for member in group.members.values():
            ticket = group.take_join_ticket(member)
            if ticket is not None:
                out.reply(ticket, self._joined(group, member.member_id, with_members=True))
            self._expect_heartbeat(out, group, member)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        out.effects.append(ArmTimer((SYNC, group.group_id), group.rebalance_timeout_ms))

    # Sync

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now_ms: int) -> Outcome:
        self.now_ms = now_ms
        out = Outcome()
        if not request.group_id:
            return out.reply(ticket, sync_error(ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(request.group_id)
        if group is None:
            return out.reply(ticket, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        try:
            member = group.validate_member(request.member_id, request.group_instance_id)
        except RemoteError as error:
            return out.reply(ticket, sync_error(error.code))
        if request.generation_id != group.generation:
            return out.reply(ticket, sync_error(ErrorCode.ILLEGAL_GENERATION))
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
            return out.reply(ticket, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if group.state is PREPARING_REBALANCE:
            return out.reply(ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        self._synced(out, group, member)
        if group.state is STABLE:
            return out.reply(ticket, self._assigned(group, member))
        assert group.state is COMPLETING_REBALANCE, f"group {group.group_id} is {group.state} and has members"
        if member.sync_ticket is not None:
            out.reply(member.sync_ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        if group.leader == member.member_id:
            given = {assigned.member_id: assigned.assignment for assigned in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            out.records.append(records.group_metadata(group.group_id, group.to_value(assignments)))
            out.token = AssignmentStored(group, group.generation, assignments)
        return out

    def _synced(self, out: Outcome, group: ClassicGroup, member: Member) -> None:
        if group.pending_syncs:
            group.pending_syncs.pop(member.member_id, None)
            if not group.pending_syncs:
                out.effects.append(CancelTimer((SYNC, group.group_id)))

    def _assigned(self, group: ClassicGroup, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )

    def _drop_assignments(self, out: Outcome, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                out.reply(member.sync_ticket, sync_error(code))
                member.sync_ticket = None
                self._expect_heartbeat(out, group, member)

    def _sync_time_is_up(self, out: Outcome, group: ClassicGroup) -> None:
        if group.state not in (COMPLETING_REBALANCE, STABLE) or not group.pending_syncs:
            return
        late = list(group.pending_syncs)
        for member_id in late:
            self._remove(out, group, group.members[member_id])
        self._prepare(out, group, f"{', '.join(late)} did not sync in time")

    # Heartbeat and leave

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now_ms: int) -> Outcome:
        self.now_ms = now_ms
        out = Outcome()
        return out.reply(ticket, HeartbeatResponse(error_code=self._heartbeat(out, request)))

    def _heartbeat(self, out: Outcome, request: HeartbeatRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            member = group.validate_member(request.member_id, request.group_instance_id)
        except RemoteError as error:
            return error.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._expect_heartbeat(out, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE

    def _expect_heartbeat(self, out: Outcome, group: ClassicGroup, member: Member) -> None:
        out.effects.append(ArmTimer((HEARTBEAT, group.group_id, member.member_id), member.session_timeout_ms))

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, now_ms: int) -> Outcome:
        """Takes `members` of every version; the API puts the single one of the old versions there."""
        self.now_ms = now_ms
        out = Outcome()
        if not request.group_id:
            return out.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(request.group_id)
        answers = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(out, group, identity),
            )
            for identity in request.members
        ]
        if group is not None and any(answer.error_code == ErrorCode.NONE for answer in answers):
            left = ", ".join(
                f"{identity.group_instance_id or identity.member_id}{_client_reason(identity.reason)}"
                for identity in request.members
            )
            if group.state in (STABLE, COMPLETING_REBALANCE):
                self._prepare(out, group, f"{left} left")
            else:
                self._maybe_complete(out, group)
        return out.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))

    def _leave_one(self, out: Outcome, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        if identity.member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member, of which only the instance id is known.
            current = group.static_members.get(identity.group_instance_id or "")
            if identity.group_instance_id is None or current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._remove(out, group, group.members[current])
        elif identity.member_id in group.pending_joins:
            group.remove(identity.member_id)
            out.effects.append(CancelTimer((HEARTBEAT, group.group_id, identity.member_id)))
        else:
            try:
                self._remove(out, group, group.validate_member(identity.member_id, identity.group_instance_id))
            except RemoteError as error:
                return error.code
        return ErrorCode.NONE

    def _remove(self, out: Outcome, group: ClassicGroup, member: Member) -> None:
        out.effects.append(CancelTimer((HEARTBEAT, group.group_id, member.member_id)))
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            out.reply(ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.sync_ticket is not None:
            out.reply(member.sync_ticket, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def _session_is_over(self, out: Outcome, group: ClassicGroup, member_id: str) -> None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            self._maybe_complete(out, group)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.join_ticket is not None or member.sync_ticket is not None):
            # It waits for us, not we for it; a session begins anew when it is answered.
            return
        self._remove(out, group, member)
        self._rebalance_or_complete(out, group, f"the session of {member_id} is over")

    # Timers, writes, take-over

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        self.now_ms = now_ms
        out = Outcome()
        group = self.groups.get(key[1])
        if group is not None:
            match key[0]:
                case "heartbeat":
                    self._session_is_over(out, group, key[2])
                case "join":
                    self._join_time_is_up(out, group)
                case _:
                    self._sync_time_is_up(out, group)
        return out

    def written(self, token: object, error: ErrorCode, now_ms: int) -> Outcome:
        self.now_ms = now_ms
        out = Outcome()
        match token:
            case GroupCreated():
                self._group_created(out, token, error)
            case AssignmentStored():
                self._assignment_stored(out, token, error)
            case StaticMemberStored():
                self._static_member_stored(out, token, error)
        return out

    def _group_created(self, out: Outcome, token: GroupCreated, error: ErrorCode) -> None:
        group = token.group
        if error is ErrorCode.NONE:
            return
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            if self.store.holds(group.group_id):
                # It took too long, and was not taken back: it is in the log, where a take-over would find it.
                self.groups[group.group_id] = ClassicGroup(group.group_id, self.now_ms)
        waiting = [(m, group.take_join_ticket(m)) for m in group.members.values()]
        for member, ticket in waiting:
            if ticket is not None:
                out.reply(ticket, join_error(error))
            out.effects.append(CancelTimer((HEARTBEAT, group.group_id, member.member_id)))
        out.effects += [CancelTimer((HEARTBEAT, group.group_id, pending)) for pending in group.pending_joins]
        out.effects.append(CancelTimer((JOIN, group.group_id)))
        group.transition(DEAD, self.now_ms)

    def _assignment_stored(self, out: Outcome, token: AssignmentStored, error: ErrorCode) -> None:
        group = token.group
        if group.state is not COMPLETING_REBALANCE or group.generation != token.generation:
            return  # Someone joined or left meanwhile, and everyone was told to join again.
        if error is not ErrorCode.NONE:
            self._drop_assignments(out, group, error)
            self._prepare(out, group, f"the assignment could not be written: {error.name}")
            return
        group.transition(STABLE, self.now_ms)
        for member in group.members.values():
            member.assignment = token.assignments[member.member_id]
            if member.sync_ticket is not None:
                out.reply(member.sync_ticket, self._assigned(group, member))
                member.sync_ticket = None
                self._expect_heartbeat(out, group, member)

    def _static_member_stored(self, out: Outcome, token: StaticMemberStored, error: ErrorCode) -> None:
        group, member = token.group, token.member
        if member.join_ticket is not token.ticket:
            return  # Removed, or joined again, and answered then.
        if error is ErrorCode.NONE:
            if group.state is STABLE:
                group.take_join_ticket(member)
                out.reply(token.ticket, token.reply)
                self._expect_heartbeat(out, group, member)
            return  # Otherwise a rebalance began meanwhile; it takes this join for the next generation.
        group.take_join_ticket(member)
        out.reply(token.ticket, join_error(error))
        if group.members.get(member.member_id) is not member or member.instance_id is None:
            return
        new_id = member.member_id
        group.replace_static(member.instance_id, new_id, token.old_member_id)
        group.update(
            member, token.old_protocols, token.old_rebalance_timeout_ms, token.old_session_timeout_ms, ticket=None
        )
        out.effects.append(CancelTimer((HEARTBEAT, group.group_id, new_id)))
        self._expect_heartbeat(out, group, member)

    def take_over(self, now_ms: int) -> Outcome:
        """The log was replayed: the groups it tells of live, and every member has a whole session to be heard of."""
        self.now_ms = now_ms
        out = Outcome()
        for group_id, value in self.store.metadata.items():
            group = self.groups[group_id] = ClassicGroup.load(group_id, value)
            for member in group.members.values():
                self._expect_heartbeat(out, group, member)
            if len(group.members) > self.config.size_max:
                self._prepare(out, group, f"it has more than {self.config.size_max} members")
        for group_id in (*self.store.offsets, *self.store.stagers):
            if group_id not in self.groups and group_id not in self.store.others:
                # Only offsets: of a consumer that assigns its partitions itself.
                self.groups[group_id] = ClassicGroup(group_id, now_ms)
        return out

    def parked(self) -> list[Ticket]:
        found: list[Ticket] = []
        for group in self.groups.values():
            for member in group.members.values():
                found += [t for t in (member.join_ticket, member.sync_ticket) if t is not None]
        return found


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Version 0 has none and means the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _client_reason(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current
