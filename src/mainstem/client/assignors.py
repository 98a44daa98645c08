"""Who reads what: the assignors of the classic protocol, as pure functions of subscriptions and partition counts.

The leader of a group runs one of them; everybody else obeys what SyncGroup brings. Members of one group may be Java's,
librdkafka's and ours, so names, user data and results are theirs:

- `range` and `roundrobin` give exactly what Java's give where no racks are named. Static members are ordered by their
  instance id and come before dynamic ones (KIP-345).
- `sticky` and `cooperative-sticky` keep what members own, as long as the loads stay even. Where all members want the
  same topics they give the members the loads that Java gives and keep as many partitions where they are; ties that
  Java leaves to the order of a hash map are broken by member id here.
- `cooperative-sticky` takes a partition from its owner in one round and gives it to the next owner in another
  (KIP-429): what is still owned by somebody else is left out of the result.

User data: `sticky` tells what a member owned and in which generation (KIP-54, KIP-341); `cooperative-sticky` tells the
generation only, for the subscription itself says what is owned from v1 and the generation from v2. A member's claim
counts only if nobody claims the same partition in a later generation; where two claim it in the same one, neither has
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from struct import error as StructError  # noqa: N812 (a class that is not named like one)
from typing import Final

from mainstem.client.sticky import rightful_owners, stick
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from mainstem.protocol.messages.consumer_protocol import TopicPartition as OwnedPartitions

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1

_VERSION: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")


class RebalanceProtocol(Enum):
    EAGER = 0
    """Everything is given back before a member joins again."""
    COOPERATIVE = 1
    """Members keep what they own while they join (KIP-429)."""


@dataclass(slots=True)
class Subscription:
    """What one member asks for, and what it has."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by its id."""


@dataclass(frozen=True, slots=True)
class Assignor:
    name: str
    assign: Callable[[Mapping[str, int], Mapping[str, Subscription]], Assignment]
    """Partition counts by topic, subscriptions by member id."""
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None] = field(default=lambda owned, generation: None)
    """What a member that owned these partitions in that generation adds to its subscription."""


# What travels in JoinGroup and SyncGroup


def encode_subscription(subscription: Subscription) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.pack(SUBSCRIPTION_VERSION) + message.encode(SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """What another member wrote; a newer version is read as the newest one known."""
    version = _version_of(data, "subscription", SUBSCRIPTION_VERSION)
    message = ConsumerProtocolSubscription.decode(data, version, _VERSION.size)
    owned = [TopicPartition(each.topic, number) for each in message.owned_partitions for number in each.partitions]
    return Subscription(
        message.topics, owned, message.generation_id, message.user_data, instance_id, message.rack_id or None
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ],
        user_data=user_data,
    )
    return _VERSION.pack(ASSIGNMENT_VERSION) + message.encode(ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """What the leader gave this member; a member that got nothing may be sent nothing at all."""
    if not data:
        return []
    version = _version_of(data, "assignment", ASSIGNMENT_VERSION)
    message = ConsumerProtocolAssignment.decode(data, version, _VERSION.size)
    return [TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions]


def _version_of(data: bytes, what: str, newest: int) -> int:
    if len(data) < _VERSION.size:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a {what} of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a {what} of version {version}")
    return min(int(version), newest)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order of first sight."""
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


# range and roundrobin


def _member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members by instance id, then dynamic ones by member id, as in Java."""
    return sorted(
        subscriptions,
        key=lambda member: (
            subscriptions[member].instance_id is None,
            subscriptions[member].instance_id or member,
            member,
        ),
    )


def assign_range(partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Each topic is cut into consecutive pieces, the first members get the larger ones."""
    assignment: Assignment = {member: [] for member in subscriptions}
    readers: dict[str, list[str]] = {}
    for member in _member_order(subscriptions):
        for topic in dict.fromkeys(subscriptions[member].topics):
            readers.setdefault(topic, []).append(member)
    for topic in sorted(readers):
        count = partition_counts.get(topic, 0)
        members = readers[topic]
        share, longer = divmod(count, len(members))
        first = 0
        for index, member in enumerate(members):
            last = first + share + (index < longer)
            assignment[member] += [TopicPartition(topic, number) for number in range(first, last)]
            first = last
    return assignment


def assign_round_robin(partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """All partitions in order are dealt to the members in order, over those who do not want the topic."""
    assignment: Assignment = {member: [] for member in subscriptions}
    members = _member_order(subscriptions)
    wanted = {member: frozenset(subscriptions[member].topics) for member in members}
    at = 0
    for topic in sorted(frozenset().union(*wanted.values())):
        for number in range(partition_counts.get(topic, 0)):
            while topic not in wanted[members[at]]:
                at = (at + 1) % len(members)
            assignment[members[at]].append(TopicPartition(topic, number))
            at = (at + 1) % len(members)
    return assignment


# sticky and cooperative-sticky


def sticky_user_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    chunks = [_INT32.pack(len(by_topic(owned)))]
    for topic, numbers in by_topic(owned).items():
        name = topic.encode()
        chunks += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    chunks.append(_INT32.pack(generation))
    return b"".join(chunks)


def read_sticky_user_data(data: bytes) -> tuple[list[TopicPartition], int] | None:
    """What `sticky_user_data` wrote; the first version ends before the generation. None if it is something else."""
    owned: list[TopicPartition] = []
    try:
        (topics,) = _INT32.unpack_from(data, 0)
        at = _INT32.size
        for _ in range(topics):
            (size,) = _INT16.unpack_from(data, at)
            at += _INT16.size
            name = data[at : at + size].decode()
            at += size
            (count,) = _INT32.unpack_from(data, at)
            at += _INT32.size
            if count < 0 or count > (len(data) - at) // _INT32.size:
                return None
            for _ in range(count):
                owned.append(TopicPartition(name, _INT32.unpack_from(data, at)[0]))
                at += _INT32.size
        if at == len(data):
            return owned, NO_GENERATION
        (generation,) = _INT32.unpack_from(data, at)
    except (ValueError, StructError):
        return None
    return owned, int(generation)


def cooperative_user_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    return _INT32.pack(generation)


def _sticky_claim(subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
    """Its data only: an eager member has given back what it owned before it wrote its subscription."""
    if not subscription.user_data:
        return (), NO_GENERATION
    return read_sticky_user_data(subscription.user_data) or ((), NO_GENERATION)


def _cooperative_claim(subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
    data = subscription.user_data
    if subscription.generation != NO_GENERATION or not data:
        return subscription.owned, subscription.generation
    if len(data) == _INT32.size:
        return subscription.owned, int(_INT32.unpack(data)[0])
    # librdkafka sends what `sticky` sends.
    told = read_sticky_user_data(data)
    return subscription.owned, NO_GENERATION if told is None else told[1]


def assign_sticky(partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    claims = {member: _sticky_claim(subscription) for member, subscription in subscriptions.items()}
    return stick(partition_counts, {member: each.topics for member, each in subscriptions.items()}, claims)


def assign_cooperative(partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    claims = {member: _cooperative_claim(subscription) for member, subscription in subscriptions.items()}
    assignment = stick(partition_counts, {member: each.topics for member, each in subscriptions.items()}, claims)
    rightful = rightful_owners(claims)
    holders: dict[TopicPartition, set[str]] = {}
    for member, subscription in subscriptions.items():
        for partition in subscription.owned:
            holders.setdefault(partition, set()).add(member)
    for member, partitions in assignment.items():
        # Who has it by right keeps it, whoever else still believes to have it.
        assignment[member] = [
            each for each in partitions if rightful.get(each) == member or not holders.get(each, set()) - {member}
        ]
    return assignment


RANGE: Final = Assignor("range", assign_range)
ROUND_ROBIN: Final = Assignor("roundrobin", assign_round_robin)
STICKY: Final = Assignor("sticky", assign_sticky, user_data=sticky_user_data)
COOPERATIVE_STICKY: Final = Assignor(
    "cooperative-sticky",
    assign_cooperative,
    (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER),
    cooperative_user_data,
)
ASSIGNORS: Final = {each.name: each for each in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}
