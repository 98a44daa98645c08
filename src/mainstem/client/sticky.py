"""The sticky assignment itself: even loads first, then as few moves as that allows (KIP-54).

Where all members want the same topics, the even loads are known: everybody gets the average rounded down, and as many
as there is rest get one more. Members keep what they have up to that, and what is left over is dealt to those below.
Where they want different topics, partitions that few may read are given first, and then partitions are moved from a
member to one that may read it and has at least two less, until there is no such pair: no move makes it more even.

A partition that was claimed by two members goes to the one with the later generation; claimed in the same generation it
is nobody's. The one who had it before (KIP-341) is asked first when it has to move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from mainstem.client.types import TopicPartition

Claims = Mapping[str, tuple[Sequence[TopicPartition], int]]
"""What each member says it owns, and the generation in which it got that."""


def rightful_owners(claims: Claims) -> dict[TopicPartition, str]:
    """Whose each partition is by what the members claim; those that nobody has a right to are left out."""
    latest: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for member, (mine, generation) in claims.items():
        for partition in dict.fromkeys(mine):
            known = latest.get(partition)
            if known is None or generation > known:
                latest[partition] = generation
                owners[partition] = member
            elif generation == known:
                owners[partition] = None
    return {partition: member for partition, member in owners.items() if member is not None}


def stick(
    partition_counts: Mapping[str, int], topics: Mapping[str, Sequence[str]], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member. `topics` has every member."""
    wanted = {member: frozenset(topics[member]) for member in sorted(topics)}
    known = frozenset(partition_counts)
    if len({each & known for each in wanted.values()}) <= 1:
        return _deal_evenly(partition_counts, wanted, claims)
    return _General(partition_counts, wanted, claims).assign()


def _deal_evenly(
    partition_counts: Mapping[str, int], wanted: Mapping[str, frozenset[str]], claims: Claims
) -> dict[str, list[TopicPartition]]:
    members = list(wanted)
    readable = next(iter(wanted.values()), frozenset())
    partitions = [
        TopicPartition(topic, number) for topic in sorted(readable) for number in range(partition_counts.get(topic, 0))
    ]
    owned = _kept_by_equals(partitions, members, claims)
    share, rest = divmod(len(partitions), max(1, len(members)))
    assignment: dict[str, list[TopicPartition]] = {}
    below: deque[str] = deque()
    at_share: deque[str] = deque()
    for member in members:
        mine = owned[member]
        if len(mine) > share and rest > 0:
            # One of those that get one more.
            rest -= 1
            assignment[member] = mine[: share + 1]
        else:
            assignment[member] = mine[:share]
            (below if len(mine) < share else at_share).append(member)
    taken = {each for mine in assignment.values() for each in mine}
    for partition in partitions:
        if partition in taken:
            continue
        if below:
            member = below.popleft()
            assignment[member].append(partition)
            (below if len(assignment[member]) < share else at_share).append(member)
        else:
            # Nobody is below the average any more: what is left is the rest, one for each.
            assignment[at_share.popleft()].append(partition)
    return assignment


def _kept_by_equals(
    partitions: Sequence[TopicPartition], members: Sequence[str], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """What each member owned and may keep."""
    existing = frozenset(partitions)
    owners = rightful_owners(claims)
    return {
        member: [tp for tp in dict.fromkeys(claims[member][0]) if tp in existing and owners.get(tp) == member]
        for member in members
    }


class _General:
    """Members that want different topics."""

    def __init__(
        self, partition_counts: Mapping[str, int], wanted: Mapping[str, frozenset[str]], claims: Claims
    ) -> None:
        self._counts = partition_counts
        self._readers: dict[str, list[str]] = {}
        for member, topics in wanted.items():
            for topic in topics:
                if topic in partition_counts:
                    self._readers.setdefault(topic, []).append(member)
        self._owner: dict[TopicPartition, str] = {}
        self._before: dict[TopicPartition, str] = {}
        self._load = dict.fromkeys(wanted, 0)
        self._members = list(wanted)
        self._settle(wanted, claims)

    def _settle(self, wanted: Mapping[str, frozenset[str]], claims: Claims) -> None:
        by_generation: dict[TopicPartition, dict[int, list[str]]] = {}
        for member in self._members:
            mine, generation = claims[member]
            for partition in dict.fromkeys(mine):
                by_generation.setdefault(partition, {}).setdefault(generation, []).append(member)
        for partition, claimants in by_generation.items():
            if not 0 <= partition.partition < self._counts.get(partition.topic, 0):
                continue
            latest, *earlier = sorted(claimants, reverse=True)
            if len(claimants[latest]) == 1 and partition.topic in wanted[claimants[latest][0]]:
                self._give(partition, claimants[latest][0])
            if earlier and partition.topic in wanted[claimants[earlier[0]][0]]:
                self._before[partition] = claimants[earlier[0]][0]

    def _give(self, partition: TopicPartition, member: str) -> None:
        owner = self._owner.get(partition)
        if owner is not None:
            self._load[owner] -= 1
        self._owner[partition] = member
        self._load[member] += 1

    def assign(self) -> dict[str, list[TopicPartition]]:
        # Partitions with few readers first: the others can make up for it.
        ordered = [
            TopicPartition(topic, number)
            for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic))
            for number in range(self._counts[topic])
        ]
        new = [partition for partition in ordered if partition not in self._owner]
        for partition in new:
            self._give(partition, self._lightest(partition.topic))
        movable = [partition for partition in ordered if len(self._readers[partition.topic]) > 1]
        # What was nobody's may move freely: only then what somebody has.
        fresh = frozenset(new)
        self._even_out([partition for partition in movable if partition in fresh])
        self._even_out(movable)
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in self._members}
        for partition in sorted(self._owner):
            assignment[self._owner[partition]].append(partition)
        return assignment

    def _lightest(self, topic: str) -> str:
        return min(self._readers[topic], key=lambda member: (self._load[member], member))

    def _even_out(self, partitions: Sequence[TopicPartition]) -> None:
        """Each move makes the sum of squared loads smaller, so there is an end to it."""
        moved = True
        while moved:
            moved = False
            for partition in partitions:
                load = self._load[self._owner[partition]]
                target = self._before.get(partition)
                if target is None or self._load[target] + 1 >= load:
                    target = self._lightest(partition.topic)
                if self._load[target] + 1 < load:
                    self._give(partition, target)
                    moved = True
