"""Who leads a partition, who is in sync and who may lead later: what one change of a partition comes to.

The rules are those of KIP-966:
- The leader is the first replica, in the order of assignment, that is in sync (or, when nobody is, eligible) and alive.
- A replica that leaves an ISR which falls below `min.insync.replicas` stays eligible (ELR): it has everything that is
  committed. It loses that with an unclean shutdown, since what it had not synced may be gone.
- When the ISR is at or above the minimum again, nobody else is eligible.
- With nobody in sync and nobody eligible, the last known leader may lead again: it has the most. That is an unclean
  election, and the partition is in recovery from then on.
- A partition with no leader keeps an empty ISR when ELR is on; without ELR the last in-sync replica stays in it.
- Every election is a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from mainstem.core.controller.context import Context
from mainstem.core.controller.states import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionState,
    TopicState,
)
from mainstem.protocol.messages.metadata_records import PartitionChangeRecord


class Election(Enum):
    PREFERRED = 0
    """The first replica takes over if it can."""
    ONLINE = 1
    """Only when the leader cannot go on."""
    UNCLEAN = 2
    """The same, and anyone alive rather than nobody."""


class PartitionChange:
    """Collects what is to change and builds the record for it."""

    def __init__(
        self,
        context: Context,
        topic: TopicState,
        index: int,
        *,
        election: Election = Election.ONLINE,
        can_lead: Callable[[int], bool] | None = None,
    ) -> None:
        self.context = context
        self.topic = topic
        self.index = index
        self.partition = topic.partitions[index]
        self.election = election
        self.isr = list(self.partition.isr)
        self.replicas = list(self.partition.replicas)
        self.adding = list(self.partition.adding_replicas)
        self.removing = list(self.partition.removing_replicas)
        self.recovery_state: int | None = None
        self.directories: dict[int, bytes] = {}
        self.unclean_shutdown: tuple[int, ...] = ()
        self._elr = list(self.partition.elr)
        partition = self.partition
        self._can_lead = (lambda replica: context.can_lead(partition, replica)) if can_lead is None else can_lead

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None where nothing changes."""
        partition = self.partition
        record = PartitionChangeRecord(topic_id=self.topic.topic_id, partition_id=self.index)
        self._complete_reassignment()
        if self.context.elr_enabled:
            self._elr = self._eligible()
        unclean = self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.replicas):
            # Followers that were removed must notice at once that they are.
            record.leader = partition.leader
        if not self.context.elr_enabled or unclean:
            self._elr = []
        if self._elr != list(partition.elr):
            record.eligible_leader_replicas = self._elr
        if record.isr is None and (self.isr or self.context.elr_enabled) and self.isr != list(partition.isr):
            record.isr = self.isr
        self._set_assignment(record)
        self._set_last_known_leader(record)
        if self.recovery_state is not None and self.recovery_state != partition.recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _is_empty(record) else record

    def _complete_reassignment(self) -> None:
        """A reassignment is complete when every replica of the target is in sync (KIP-455)."""
        if not (self.adding or self.removing):
            return
        target = [replica for replica in self.replicas if replica not in self.removing]
        in_sync = [replica for replica in self.isr if replica not in self.removing]
        if not target or not all(replica in in_sync for replica in self.adding) or not in_sync:
            return
        self.replicas, self.isr, self.adding, self.removing = target, in_sync, [], []

    def _eligible(self) -> list[int]:
        partition = self.partition
        wanted = min(self.context.min_in_sync(self.topic.name), len(self.replicas))
        if len(self.isr) >= wanted:
            return []
        left = dict.fromkeys([*partition.elr, *partition.isr])
        return [
            replica
            for replica in left
            if replica not in self.isr and replica not in self.unclean_shutdown and replica in self.replicas
        ]

    def _is_valid(self, replica: int) -> bool:
        eligible = replica in self.isr or (not self.isr and replica in self._elr)
        return eligible and self._can_lead(replica)

    def _elect(self, record: PartitionChangeRecord) -> bool:
        """Sets the leader if another is due; whether the election was unclean."""
        leader, unclean = self._choose()
        if leader == self.partition.leader:
            return False
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.partition.recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        elif leader != NO_LEADER and leader in self._elr:
            self.isr = [leader]
            self._elr = [replica for replica in self._elr if replica != leader]
        return unclean

    def _choose(self) -> tuple[int, bool]:
        current = self.partition.leader
        if self.election is Election.PREFERRED and self.replicas and self._is_valid(self.replicas[0]):
            return self.replicas[0], False
        if current in self.replicas and self._is_valid(current):
            return current, False
        for replica in self.replicas:
            if self._is_valid(replica):
                return replica, False
        if self._may_elect_last_known_leader():
            return self.partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._can_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_elect_last_known_leader(self) -> bool:
        last = self.partition.last_known_elr
        if not self.context.elr_enabled or self.isr or self._elr or len(last) != 1:
            return False
        return last[0] in self.replicas and self._can_lead(last[0])

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.replicas != list(partition.replicas):
            record.replicas = self.replicas
        if self.removing != list(partition.removing_replicas):
            record.removing_replicas = self.removing
        if self.adding != list(partition.adding_replicas):
            record.adding_replicas = self.adding
        if not self.context.has_directories or (record.replicas is None and not self.directories):
            return
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        known.update(self.directories)
        directories = [known.get(replica) or self._directory_of_new(replica) for replica in self.replicas]
        if record.replicas is not None or directories != list(partition.directories):
            record.directories = directories

    def _directory_of_new(self, replica: int) -> bytes:
        return (
            self.context.default_directory(replica) if replica in self.context.image.brokers else UNASSIGNED_DIRECTORY
        )

    def _set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Remembered when a partition becomes leaderless, forgotten when it has a leader again."""
        if not self.context.elr_enabled:
            return
        partition = self.partition
        if record.isr == []:
            if partition.last_known_elr != (partition.leader,) and partition.leader != NO_LEADER:
                record.last_known_elr = [partition.leader]
            return
        stays = partition.leader != NO_LEADER and record.leader != NO_LEADER
        if (record.leader >= 0 or stays) and partition.last_known_elr:
            record.last_known_elr = []


def _is_empty(record: PartitionChangeRecord) -> bool:
    return record == PartitionChangeRecord(topic_id=record.topic_id, partition_id=record.partition_id)


Found = tuple[TopicState, int, PartitionState]


def broker_left(
    context: Context, broker_id: int, found: Iterable[Found], *, clean: bool
) -> list[PartitionChangeRecord]:
    """What becomes of partitions when a broker is fenced, shuts down, or comes back from an unclean shutdown."""
    changes = []
    for topic, index, partition in found:
        if broker_id not in partition.isr and (clean or broker_id not in partition.elr):
            continue
        change = PartitionChange(
            context,
            topic,
            index,
            election=election_for(context, topic),
            can_lead=_all_but(context, partition, broker_id),
        )
        change.isr = [replica for replica in partition.isr if replica != broker_id]
        if not clean:
            change.unclean_shutdown = (broker_id,)
        record = change.build()
        if record is not None:
            changes.append(record)
    return changes


def broker_came(context: Context, broker_id: int) -> list[PartitionChangeRecord]:
    """Leaders for the partitions that had none, now that a broker is unfenced."""
    changes = []
    for topic, index, partition in context.image.partitions_of(broker_id):
        if partition.leader != NO_LEADER:
            continue
        change = PartitionChange(
            context,
            topic,
            index,
            election=election_for(context, topic),
            can_lead=_also(context, partition, broker_id),
        )
        record = change.build()
        if record is not None:
            changes.append(record)
    return changes


def election_for(context: Context, topic: TopicState) -> Election:
    return Election.UNCLEAN if context.unclean_election_enabled(topic.name) else Election.ONLINE


def _all_but(context: Context, partition: PartitionState, broker_id: int) -> Callable[[int], bool]:
    return lambda replica: replica != broker_id and context.can_lead(partition, replica)


def _also(context: Context, partition: PartitionState, broker_id: int) -> Callable[[int], bool]:
    def can_lead(replica: int) -> bool:
        if replica != broker_id:
            return context.can_lead(partition, replica)
        return context.image.brokers[broker_id].has_online_directory(partition.directory_of(broker_id))

    return can_lead
