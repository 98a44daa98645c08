"""G4, G6: a living group is what the log of its coordinator says, so that whoever takes over knows the same members.

Offsets are looked at elsewhere (`offsets_follow`); this is about generations, members and what they were given. A group
that is Stable has the generation, the leader and the members of its newest record, each with its part (KAFKA-10284).
One that is in the middle of a rebalance is ahead of its log, and never behind it.

Looked at after each step that wrote to such a log or opened it, once that is committed: before, a static member that
was replaced may be put back. What took nearly as long as a coordinator waits for a commit is left alone, because the
coordinator may have given it up while it stands in the log.
"""

from math import inf
from typing import NamedTuple

from mainstem.broker.app import Broker
from mainstem.core.group.classic import STABLE, ClassicGroup
from mainstem.core.group.machine import GROUP_METADATA_PREFIX, GroupMachine
from mainstem.protocol.batch import BatchView
from mainstem.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.group_shards import comparable
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import OFFSETS_TOPIC

PROMISE = "G4 a group is what its log says"
GIVEN_UP_S = 4.0
"""A coordinator waits five seconds for a commit."""
SURE = inf
"""When that was written which was committed in time, and counts from then on."""


class Logged(NamedTuple):
    at: int
    written_s: float
    group: str
    value: GroupMetadataValue | None
    """None where the group has ended."""


class GroupsLiveOn(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._logged: dict[int, list[Logged]] = {}
        """By the partition of the coordinator's topic, in the order of its log."""
        self._changed: dict[int, None] = {}

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] != OFFSETS_TOPIC or batch.is_control:
            return
        self._changed[place[1]] = None
        for record in iterate_records(batch):
            if record.key is not None and record.key.startswith(GROUP_METADATA_PREFIX):
                key, value = GROUP_RECORDS.decode(record.key, record.value)
                assert isinstance(key, GroupMetadataKey)
                assert value is None or isinstance(value, GroupMetadataValue)
                logged = Logged(record.offset, self.world.scheduler.now, key.group, value)
                self._logged.setdefault(place[1], []).append(logged)

    def reopened(self, place: Place, end: int, kept: list[BatchView], lost: list[BatchView]) -> None:
        if place[0] == OFFSETS_TOPIC:
            self._changed[place[1]] = None
            # Who takes over has read it as it is, however long it took to be written.
            there = [each for each in self._logged.get(place[1], ()) if each.at < end]
            self._logged[place[1]] = [each._replace(written_s=SURE) for each in there]

    def forget(self) -> None:
        self._logged.clear()
        self._changed.clear()

    def after_step(self, broker: Broker) -> None:
        if not self._changed:
            return
        for partition, machine in comparable(broker, self._changed):
            if partition.high_watermark < partition.log.log_end:
                continue
            index = partition.index
            del self._changed[index]
            newest = {each.group: each for each in self._logged.get(index, ())}
            now = self.world.scheduler.now
            for name, logged in newest.items():
                if logged.value is not None and now - logged.written_s < GIVEN_UP_S:
                    newest[name] = logged._replace(written_s=SURE)
                    self._check(machine, name, logged.value)
            self._logged[index] = list(newest.values())

    def _check(self, machine: GroupMachine, name: str, value: GroupMetadataValue) -> None:
        group = machine.groups.get(name)
        if group is None:
            raise Violation("G4 a coordinator knows its groups", f"{name} is in its log, and is not known")
        if group.generation < value.generation:
            raise Violation(
                PROMISE, f"{name} is in generation {group.generation}; its log says that {value.generation} has begun"
            )
        if group.state is not STABLE:
            return
        found, expected = _living(group), _written(value)
        if found != expected:
            raise Violation(PROMISE, f"{name} has {found}; its log says {expected}")
        self.world.count("group compared with its log")


def _living(group: ClassicGroup) -> tuple[object, ...]:
    members = {each.member_id: (each.instance_id, each.assignment) for each in group.members.values()}
    return group.generation, group.protocol, group.leader, members


def _written(value: GroupMetadataValue) -> tuple[object, ...]:
    members = {each.member_id: (each.group_instance_id, bytes(each.assignment)) for each in value.members}
    return value.generation, value.protocol, value.leader, members
