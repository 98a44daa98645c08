"""One classic group as a running coordinator knows it: its state, generation, members, and who waits for what.

                 a member joins                  all have joined, or time is up
    Empty ─────────────────────▶ PreparingRebalance ────────────────────────▶ CompletingRebalance
      ▲                            │    ▲     ▲                                    │      │
      └────────────────────────────┘    │     └────────────────────────────────────┘      │ the leader's assignment
         nobody is left                 │         a member joins, leaves or expires       ▼ is committed
                                        └────────────────────────────────────────────── Stable

Dead is a group that was deleted or given up. `TRANSITIONS` is the same as data; any other step is our mistake.

Nothing here writes or answers: `machine` decides, this keeps the books. Member order is the order of joining.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from mainstem.core.coordinator.effects import Ticket
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import string_hash
from mainstem.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from mainstem.protocol.messages.group_records import GroupMetadataValue, MemberMetadata
from mainstem.protocol.messages.k11_join_group import JoinGroupResponseMember

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_STATE_TIMESTAMP: Final = -1
UNKNOWN_MEMBER: Final = ""


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = GroupState.EMPTY
PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

TRANSITIONS: Final[dict[GroupState, tuple[GroupState, ...]]] = {
    EMPTY: (PREPARING_REBALANCE, DEAD),
    PREPARING_REBALANCE: (COMPLETING_REBALANCE, EMPTY, DEAD),
    COMPLETING_REBALANCE: (STABLE, PREPARING_REBALANCE, DEAD),
    STABLE: (PREPARING_REBALANCE, DEAD),
    DEAD: (DEAD,),
}

Protocols = tuple[tuple[str, bytes], ...]
"""What a member supports, by preference: the names of its assignors and what it says to each."""


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Joined for the first time and not yet answered: it has no id to heartbeat with."""
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.instance_id!r}, assignment={self.assignment!r})"

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol}")

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate it likes best."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of {list(candidates)}")


class ClassicGroup:
    __slots__ = (
        "_awaiting_join",
        "_supporters",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms = now_ms
        """When it came into its state; -1 when an old record did not tell."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.pending_joins: dict[str, None] = {}
        """Ids that were given out (KIP-394) and have not joined yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members that were told of this generation and have not asked for their assignment yet."""
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        """The delay of a first rebalance (KIP-134): the part under way, and what may come after it."""
        self.subscribed_topics: frozenset[str] | None = None
        """What the members of this generation consume; None when that cannot be told."""
        self._awaiting_join = 0
        self._supporters: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation}, {self.members})"

    @classmethod
    def load(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as its record tells it: stable with its members, or empty."""
        group = cls(group_id, value.current_state_timestamp)
        group.state = STABLE if value.members else EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for saved in value.members:
            timeout = saved.session_timeout if saved.rebalance_timeout == -1 else saved.rebalance_timeout
            group.add(
                Member(
                    saved.member_id,
                    saved.group_instance_id,
                    saved.client_id,
                    saved.client_host,
                    timeout,
                    saved.session_timeout,
                    ((value.protocol or "", saved.subscription),),
                    saved.assignment,
                ),
                group.protocol_type,
                None,
            )
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def to_value(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """The record of this generation, with these assignments."""
        protocol = self.protocol
        members = []
        for member in self.members.values():
            assert protocol is not None, f"group {self.group_id} has members and no protocol"
            members.append(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(protocol),
                    assignment=assignments[member.member_id],
                )
            )
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )

    # State

    def transition(self, target: GroupState, now_ms: int) -> None:
        assert target in TRANSITIONS[self.state], f"group {self.group_id}: {self.state.value} to {target.value}"
        self.previous_state = self.state
        self.state = target
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members speak the consumers' protocol, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> int:
        return self._awaiting_join

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self._awaiting_join and not self.pending_joins

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes `topic`; yes when a group of consumers does not tell."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    # Members

    def add(self, member: Member, protocol_type: str | None, ticket: Ticket | None) -> None:
        assert self.state is not DEAD, f"group {self.group_id} is dead"
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, f"{protocol_type} in a group of {self.protocol_type}"
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if ticket is not None:
            member.join_ticket = ticket
            self._awaiting_join += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        ticket: Ticket | None,
    ) -> Ticket | None:
        """Takes what a member said when it joined again; the ticket of a join of its that was never answered."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        earlier = self.take_join_ticket(member)
        if ticket is not None:
            member.join_ticket = ticket
            self._awaiting_join += 1
        return earlier

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.join_ticket is not None:
                self._awaiting_join -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Gives a static member another id, in the place and with the assignment it has."""
        member = self.members[old_id]
        assert self.static_members[instance_id] == old_id, f"{instance_id} is not {old_id}"
        member.member_id = new_id
        self.members = {m.member_id: m for m in self.members.values()}
        self.static_members[instance_id] = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs = {new_id if m == old_id else m: None for m in self.pending_syncs}
        if self.leader == old_id:
            self.leader = new_id
        return member

    def take_join_ticket(self, member: Member) -> Ticket | None:
        ticket = member.join_ticket
        if ticket is not None:
            member.join_ticket = None
            self._awaiting_join -= 1
        return ticket

    def validate_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of that id; RemoteError when it is unknown, or replaced by another with its instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise RemoteError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member with the instance id {instance_id}")
            if current != member_id:
                raise RemoteError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now another member")
        member = self.members.get(member_id)
        if member is None:
            raise RemoteError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
        return member

    def not_yet_joined(self) -> list[Member]:
        return [member for member in self.members.values() if member.join_ticket is None]

    def elect_joined_leader(self) -> bool:
        """Makes sure the leader is one that has joined; false when nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these can be in this group."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those all support; a tie falls as in Kafka's HashMap."""
        assert self.members, f"group {self.group_id} is empty"
        candidates = [name for name, count in self._supporters.items() if count == len(self.members)]
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(in_hash_map_order(votes), key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        """Ends the preparation: the members that are left agree on a protocol, or the group is empty."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.transition(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.subscribed_topics = self._compute_subscribed_topics()
        self.pending_syncs.clear()

    def described_members(self) -> list[JoinGroupResponseMember]:
        """What the leader is told, to assign partitions by."""
        assert self.protocol is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def _count_protocols(self, member: Member, by: int) -> None:
        for name in dict(member.protocols):
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: list[str] = []
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return None
            topics += subscribed
        return frozenset(topics)


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription; None when it is not one that can be read.

    Kafka leaves a group with such a member stuck in PreparingRebalance; here it is a group that does not tell.
    """
    if len(metadata) < 2:
        return None
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        return None
    try:
        # A later version only adds fields at the end.
        read = min(version, ConsumerProtocolSubscription.MAX_VERSION)
        return list(ConsumerProtocolSubscription.decode(metadata, read, 2).topics)
    except RemoteError:
        return None


def in_hash_map_order(keys: Iterable[str]) -> list[str]:
    """`keys` in the order in which a Java HashMap they were put into hands them out (collisions: as they came)."""
    listed = list(keys)
    table = 16
    while len(listed) > table * 3 // 4:
        table *= 2

    def bucket(key: str) -> int:
        code = string_hash(key) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (table - 1)

    return sorted(listed, key=bucket)
