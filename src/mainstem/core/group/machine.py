"""The coordinator of the groups in one partition of `__consumer_offsets`: everything that can be asked of it.

Membership is in `rebalance`, offsets are in `offsets`; here they are put together, with what administrators ask, the
expiry of what nobody uses, and the way in and out for the runtime (`CoordinatorMachine`).

A group of another protocol (KIP-848, share, streams), written by Kafka, has no members here, because its members
speak APIs that are not served: it is listed as Empty under its own type, its offsets are served, it can be deleted,
and it becomes a classic group when someone joins it as one, as in Kafka an empty one does; a share group does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from mainstem.core.coordinator.effects import ArmTimer, CancelTimer, LogRecord, Outcome, Ticket, TimerKey
from mainstem.core.group import records
from mainstem.core.group.classic import DEAD, EMPTY, STABLE, ClassicGroup, GroupState
from mainstem.core.group.config import GroupConfig
from mainstem.core.group.offsets import CommitBy, FetchedOffset, NewOffset, Offsets, WantedTopic
from mainstem.core.group.rebalance import HEARTBEAT, Caller, Rebalancing
from mainstem.core.group.store import CLASSIC, GroupStore
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.group_records import GroupMetadataKey
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest
from mainstem.protocol.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from mainstem.protocol.messages.k16_list_groups import ListedGroup
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.schema import Message

EXPIRE: Final = "expire"
EXPIRE_MAX: Final = 1000
"""How many records go at a time: after a long rest it may be all of them, and others have to be served."""
EXPIRE_LOOK_MAX: Final = 10_000
"""How many offsets are looked at for it at a time."""
EXPIRE_MORE_MS: Final = 100
GROUP_METADATA_PREFIX: Final = GroupMetadataKey.API_KEY.to_bytes(2, "big")
DESCRIBE_SAYS_NOT_FOUND_SINCE: Final = 6


class GroupMachine:
    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.store = GroupStore()
        self.members = Rebalancing(config, self.store)
        self.offsets = Offsets(self.members)
        self._to_look_at: list[str] = []
        """The groups that the expiry under way has not come to, the next one last."""

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return self.members.groups

    # Members

    def join(self, ticket: Ticket, caller: Caller, request: JoinGroupRequest, now_ms: int) -> Outcome:
        return self.members.join(ticket, caller, request, now_ms)

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now_ms: int) -> Outcome:
        return self.members.sync(ticket, request, now_ms)

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now_ms: int) -> Outcome:
        return self.members.heartbeat(ticket, request, now_ms)

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, now_ms: int) -> Outcome:
        return self.members.leave(ticket, request, now_ms)

    # Offsets

    def commit_offsets(self, ticket: Ticket, by: CommitBy, offsets: Iterable[NewOffset], now_ms: int) -> Outcome:
        return self.offsets.commit(ticket, by, offsets, now_ms)

    def fetch_offsets(
        self,
        ticket: Ticket,
        group_id: str,
        wanted: Iterable[WantedTopic] | None,
        require_stable: bool = False,
    ) -> Outcome:
        found: list[FetchedOffset] = self.offsets.fetch(group_id, wanted, require_stable)
        return Outcome().reply(ticket, found)

    def delete_offsets(self, ticket: Ticket, group_id: str, places: Iterable[tuple[str, int]]) -> Outcome:
        return self.offsets.delete(ticket, group_id, places)

    def topics_deleted(self, topics: frozenset[str]) -> Outcome:
        return self.offsets.topics_deleted(topics)

    # Administration

    def describe(self, ticket: Ticket, group_id: str, api_version: int) -> Outcome:
        return Outcome().reply(ticket, self._described(group_id, api_version))

    def _described(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            return not_described(group_id, api_version, is_other=group_id in self.store.others)
        is_stable = group.state is STABLE
        members = [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable and group.protocol is not None else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=members,
        )

    def list_groups(self, ticket: Ticket, states: Iterable[str], types: Iterable[str]) -> Outcome:
        """The groups in those states and of those types; of any, where none is named. Case does not matter."""
        wanted_states = [state.lower() for state in states]
        wanted_types = [kind.lower() for kind in types]
        found = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in self.groups.values()
        ]
        for group_id in self.store.others:
            other = self.store.other_type(group_id)
            if group_id not in self.groups and other is not None:
                found.append(
                    ListedGroup(
                        group_id=group_id, protocol_type=other, group_state=GroupState.EMPTY.value, group_type=other
                    )
                )
        return Outcome().reply(
            ticket,
            [
                listed
                for listed in found
                if (not wanted_states or listed.group_state.lower() in wanted_states)
                and (not wanted_types or listed.group_type in wanted_types)
            ],
        )

    def delete_group(self, ticket: Ticket, group_id: str, now_ms: int) -> Outcome:
        """Answers with an ErrorCode. The offsets go first and the group last, all in one batch."""
        out = Outcome()
        group = self.groups.get(group_id)
        if group is None:
            if group_id not in self.store.others:
                return out.reply(ticket, ErrorCode.GROUP_ID_NOT_FOUND)
            out.records += self.offsets.tombstones(group_id)
            out.records += [LogRecord(key, None) for key in self.store.others[group_id]]
            return out.reply(ticket, ErrorCode.NONE)
        if group.state is not EMPTY:
            return out.reply(ticket, ErrorCode.NON_EMPTY_GROUP)
        out.records += self.offsets.tombstones(group_id)
        self._bury(out, group)
        out.note("deleted a group", group=group_id)
        return out.reply(ticket, ErrorCode.NONE)

    def _bury(self, out: Outcome, group: ClassicGroup) -> None:
        """Writes the end of an empty group; whoever was given an id and has not joined must ask anew."""
        out.records.append(records.group_tombstone(group.group_id))
        out.effects += [CancelTimer((HEARTBEAT, group.group_id, member_id)) for member_id in group.pending_joins]
        group.pending_joins.clear()

    # The runtime's side

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        if value is None and key[:2] == GROUP_METADATA_PREFIX:
            self._end(GROUP_RECORDS.decode_key(key))
        self.store.replay(key, value, producer_id)

    def _end(self, key: Message) -> None:
        """A living group ends with its tombstone, and lives on if that is taken back."""
        assert isinstance(key, GroupMetadataKey)
        group = self.groups.pop(key.group, None)
        if group is not None:
            self.store.when_reverted(partial(self.groups.__setitem__, key.group, group))

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.store.replay_marker(producer_id, committed)

    def keep(self) -> None:
        self.store.keep()

    def revert(self) -> None:
        self.store.revert()

    def loaded(self, now_ms: int) -> Outcome:
        out = self.members.take_over(now_ms)
        out.effects.append(ArmTimer((EXPIRE,), self.config.offsets_retention_check_ms))
        return out

    def written(self, token: object, error: ErrorCode, now_ms: int) -> Outcome:
        return self.members.written(token, error, now_ms)

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        if key[0] == EXPIRE:
            return self._expire(now_ms)
        return self.members.timer_fired(key, now_ms)

    def _expire(self, now_ms: int) -> Outcome:
        out = Outcome()
        out.atomic = False
        if not self._to_look_at:
            self._to_look_at = list(reversed(self.groups))
        looked = 0
        while self._to_look_at and looked < EXPIRE_LOOK_MAX and len(out.records) < EXPIRE_MAX:
            group = self.groups.get(self._to_look_at[-1])
            if group is not None:
                looked += 1 + len(self.store.offsets_of(group.group_id))
                expired, none_left = self.offsets.expire(group, now_ms, EXPIRE_MAX - len(out.records))
                out.records += expired
                if none_left and group.state is EMPTY:
                    self._bury(out, group)
            if len(out.records) < EXPIRE_MAX:
                self._to_look_at.pop()
        if out.records:
            out.note("expired offsets and groups", records=len(out.records))
        delay_ms = EXPIRE_MORE_MS if self._to_look_at else self.config.offsets_retention_check_ms
        out.effects.append(ArmTimer((EXPIRE,), delay_ms))
        return out

    def parked(self) -> list[Ticket]:
        return self.members.parked()


def not_described(group_id: str, api_version: int, is_other: bool = False) -> DescribedGroup:
    """What is said of a group that is not there: Dead, and since version 6 that it was not found (KIP-1043)."""
    says = api_version >= DESCRIBE_SAYS_NOT_FOUND_SINCE
    reason = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if says else ErrorCode.NONE,
        error_message=reason if says else None,
        group_id=group_id,
        group_state=DEAD.value,
        protocol_type="",
        protocol_data="",
        members=[],
    )
