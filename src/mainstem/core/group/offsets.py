"""The offsets that groups commit: who may commit, what is read back, and when an offset goes away.

A commit is taken (G5):
- from a member, with its id, its instance id if it has one, and the generation of the group, unless the group waits
  for its leader's assignment, when the member is told that a rebalance is under way;
- from anyone, when the group is Empty and the request has no generation: an administrator, or a consumer that assigns
  its partitions itself, whose group exists by its offsets alone.

An offset expires (G7, KIP-211, KIP-496) when `offsets.retention.minutes` have passed
- since the group became Empty, whatever is older (KAFKA-13636: never during a rebalance);
- since the commit, when the group has no protocol, or is a Stable group of consumers none of which subscribes to the
  topic;
- or at the time its commit asked for, where an old client asked for one.
Not while a transaction has the same offset staged, and never in a group of another protocol. A group without offsets
that is Empty goes with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mainstem.core.coordinator.effects import ArmTimer, LogRecord, Outcome, Ticket, TransactionPart
from mainstem.core.group import records
from mainstem.core.group.classic import (
    COMPLETING_REBALANCE,
    EMPTY,
    NO_STATE_TIMESTAMP,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from mainstem.core.group.rebalance import HEARTBEAT, GroupCreated, Rebalancing
from mainstem.core.group.records import NO_EXPIRY
from mainstem.core.group.store import CommittedOffset
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.group_records import OffsetCommitValue
from mainstem.protocol.primitives import ZERO_UUID

GROUP_ID_NOT_FOUND_SINCE: Final = 9


class CommitBy(NamedTuple):
    """Who commits."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    api_version: int
    retention_ms: int = NO_EXPIRY
    part_of: TransactionPart | None = None
    """The transaction that the commit is part of: it counts when that is committed."""


class NewOffset(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class WantedTopic(NamedTuple):
    topic: str
    topic_id: bytes
    """Zero when the request does not say which topic of that name it means."""
    partitions: Iterable[int]


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    committed: CommittedOffset | None
    error: ErrorCode


class Offsets:
    def __init__(self, members: Rebalancing) -> None:
        self.config = members.config
        self.store = members.store
        self.members = members

    def commit(self, ticket: Ticket, by: CommitBy, offsets: Iterable[NewOffset], now_ms: int) -> Outcome:
        """Answers with an ErrorCode for each offset; RemoteError when none may be committed."""
        out = Outcome()
        out.part_of = by.part_of
        group = self._committing_group(by, out, now_ms)
        if by.part_of is None and group is not None and group.state in (STABLE, PREPARING_REBALANCE):
            member = group.members[by.member_id]
            out.effects.append(ArmTimer((HEARTBEAT, group.group_id, member.member_id), member.session_timeout_ms))
        expire_ms = NO_EXPIRY if by.retention_ms == NO_EXPIRY else now_ms + by.retention_ms
        codes = []
        for new in offsets:
            metadata = new.metadata or ""
            if len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > self.config.offset_metadata_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            value = OffsetCommitValue(
                offset=new.offset,
                leader_epoch=new.leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_ms,
                topic_id=new.topic_id,
            )
            out.records.append(records.offset_commit(by.group_id, new.topic, new.partition, value))
        return out.reply(ticket, codes)

    def _committing_group(self, by: CommitBy, out: Outcome, now_ms: int) -> ClassicGroup | None:
        """The group of a commit that is allowed; none for a group of another protocol."""
        group = self.members.groups.get(by.group_id)
        if group is None:
            if by.group_id in self.store.others:
                if by.generation >= 0 or by.member_id:
                    raise RemoteError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {by.member_id!r}")
                return None
            if by.generation >= 0:
                found = ErrorCode.ILLEGAL_GENERATION
                if by.part_of is None and by.api_version >= GROUP_ID_NOT_FOUND_SINCE:
                    found = ErrorCode.GROUP_ID_NOT_FOUND
                raise RemoteError(found, f"no group {by.group_id!r}")
            group = self.members.groups[by.group_id] = ClassicGroup(by.group_id, now_ms)
            out.token = GroupCreated(group)
        validate_commit(group, by, is_transactional=by.part_of is not None)
        return group

    def fetch(self, group_id: str, wanted: Iterable[WantedTopic] | None, require_stable: bool) -> list[FetchedOffset]:
        """The offsets of a group, or those asked for; unstable ones, if asked, are those a transaction has staged."""
        held = self.store.offsets_of(group_id)
        if wanted is None:
            wanted = [WantedTopic(topic, ZERO_UUID, (partition,)) for topic, partition in held]
        found = []
        for topic, topic_id, partitions in wanted:
            for partition in partitions:
                if require_stable and self.store.has_staged(group_id, topic, partition):
                    found.append(FetchedOffset(topic, partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                    continue
                committed = held.get((topic, partition))
                if committed is not None and _differ(topic_id, committed.topic_id):
                    committed = None  # Of a topic of the same name that is gone.
                found.append(FetchedOffset(topic, partition, committed, ErrorCode.NONE))
        return found

    def delete(self, ticket: Ticket, group_id: str, places: Iterable[tuple[str, int]]) -> Outcome:
        """Answers with an ErrorCode for each place; RemoteError when the group may not lose any (KIP-496)."""
        out = Outcome()
        group = self.members.groups.get(group_id)
        if group is None and group_id not in self.store.others:
            raise RemoteError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id!r}")
        if group is not None and group.state is not EMPTY and not group.is_consumer_group:
            raise RemoteError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        held = self.store.offsets_of(group_id)
        codes = []
        for topic, partition in places:
            if group is not None and group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if (topic, partition) in held or self.store.has_staged(group_id, topic, partition):
                out.records.append(records.offset_tombstone(group_id, topic, partition))
        return out.reply(ticket, codes)

    def tombstones(self, group_id: str) -> list[LogRecord]:
        """The records that take back every offset of a group, staged ones included."""
        places = dict.fromkeys((*self.store.offsets_of(group_id), *self.store.stagers.get(group_id, ())))
        return [records.offset_tombstone(group_id, topic, partition) for topic, partition in places]

    def topics_deleted(self, topics: frozenset[str]) -> Outcome:
        """Takes back the offsets of topics that are gone, so that topics of the same names begin anew."""
        out = Outcome()
        out.atomic = False
        for group_id, held in self.store.offsets.items():
            out.records += [records.offset_tombstone(group_id, t, p) for t, p in held if t in topics]
        for group_id, staged in self.store.stagers.items():
            held = self.store.offsets_of(group_id)
            out.records += [
                records.offset_tombstone(group_id, t, p) for t, p in staged if t in topics and (t, p) not in held
            ]
        return out

    # Expiry

    def expire(self, group: ClassicGroup, now_ms: int, most: int) -> tuple[list[LogRecord], bool]:
        """The tombstones of what has expired, up to `most`, and whether they leave the group without offsets."""
        held = self.store.offsets_of(group.group_id)
        if not self._may_expire(group):
            return [], not held and not self.store.has_any_staged(group.group_id)
        expired: list[LogRecord] = []
        for (topic, partition), committed in held.items():
            if len(expired) >= most:
                break
            if (
                not group.is_subscribed_to(topic)
                and self._has_expired(group, committed, now_ms)
                and not self.store.has_staged(group.group_id, topic, partition)
            ):
                expired.append(records.offset_tombstone(group.group_id, topic, partition))
        return expired, len(expired) == len(held) and not self.store.has_any_staged(group.group_id)

    def _may_expire(self, group: ClassicGroup) -> bool:
        if group.protocol_type is None or group.state is EMPTY:
            return True
        return group.state is STABLE and group.is_consumer_group and group.subscribed_topics is not None

    def _has_expired(self, group: ClassicGroup, committed: CommittedOffset, now_ms: int) -> bool:
        if committed.expire_ms != NO_EXPIRY:
            return now_ms >= committed.expire_ms
        since = committed.commit_ms
        if group.protocol_type is not None and group.state is EMPTY and group.state_timestamp_ms != NO_STATE_TIMESTAMP:
            since = group.state_timestamp_ms
        return now_ms - since >= self.config.offsets_retention_ms


def _differ(wanted: bytes, stored: bytes) -> bool:
    return wanted != stored and ZERO_UUID not in (wanted, stored)


def validate_commit(group: ClassicGroup, by: CommitBy, is_transactional: bool = False) -> None:
    """Raises RemoteError unless `by` may commit in this group (see the module)."""
    if by.generation < 0 and group.state is EMPTY:
        return
    if by.generation >= 0 or by.member_id or by.instance_id is not None:
        group.validate_member(by.member_id, by.instance_id)
        if by.generation != group.generation:
            raise RemoteError(ErrorCode.ILLEGAL_GENERATION, f"generation {by.generation}, not {group.generation}")
    elif not is_transactional:
        raise RemoteError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has members")
    if not is_transactional and group.state is COMPLETING_REBALANCE:
        raise RemoteError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} waits for its assignment")
