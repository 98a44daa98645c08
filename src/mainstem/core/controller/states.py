"""What the image holds: partitions, topics, brokers and controllers as plain slotted objects.

Ten thousand partitions must cost a few megabytes, so a partition keeps tuples that equal ones share (`Interner`), and
nothing here is made per request. Fields are Kafka's, by Kafka's names.
"""

from __future__ import annotations

from typing import Final

from mainstem.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

RECOVERED: Final = 0
RECOVERING: Final = 1

UNASSIGNED_DIRECTORY: Final = bytes(16)
"""The broker has not said yet which of its directories holds the replica (KIP-858)."""
LOST_DIRECTORY: Final = bytes(15) + b"\x01"
MIGRATING_DIRECTORY: Final = bytes(15) + b"\x02"

Ids = tuple[int, ...]
Uuids = tuple[bytes, ...]


class Interner:
    """Gives back the first of equal tuples, so that partitions with the same replicas share one."""

    __slots__ = ("_ids", "_uuids")

    def __init__(self) -> None:
        self._ids: dict[Ids, Ids] = {(): ()}
        self._uuids: dict[Uuids, Uuids] = {(): ()}

    def ids(self, values: list[int]) -> Ids:
        key = tuple(values)
        return self._ids.setdefault(key, key)

    def uuids(self, values: list[bytes]) -> Uuids:
        key = tuple(values)
        return self._uuids.setdefault(key, key)


class PartitionState:
    """One partition. `merge` is the only thing that changes it."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "recovery_state",
        "removing_replicas",
        "replicas",
    )

    def __init__(self, record: PartitionRecord, interner: Interner) -> None:
        self.replicas = interner.ids(record.replicas)
        self.isr = interner.ids(record.isr)
        self.removing_replicas = interner.ids(record.removing_replicas)
        self.adding_replicas = interner.ids(record.adding_replicas)
        self.leader = record.leader
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        self.recovery_state = record.leader_recovery_state
        # Before KIP-858 records carried no directories: all replicas are where they always were.
        directories = record.directories or [MIGRATING_DIRECTORY] * len(record.replicas)
        self.directories = interner.uuids(directories)
        self.elr = interner.ids(record.eligible_leader_replicas or [])
        self.last_known_elr = interner.ids(record.last_known_elr or [])

    def merge(self, record: PartitionChangeRecord, interner: Interner) -> None:
        """Takes over what the record changes. A leader that is set is a new leader epoch, also when it is the same."""
        if record.replicas is not None:
            self.replicas = interner.ids(record.replicas)
        if record.isr is not None:
            self.isr = interner.ids(record.isr)
        if record.removing_replicas is not None:
            self.removing_replicas = interner.ids(record.removing_replicas)
        if record.adding_replicas is not None:
            self.adding_replicas = interner.ids(record.adding_replicas)
        if record.directories is not None:
            self.directories = interner.uuids(record.directories)
        if record.eligible_leader_replicas is not None:
            self.elr = interner.ids(record.eligible_leader_replicas)
        if record.last_known_elr is not None:
            self.last_known_elr = interner.ids(record.last_known_elr)
        if record.leader_recovery_state != -1:
            self.recovery_state = record.leader_recovery_state
        if record.leader != NO_LEADER_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        self.partition_epoch += 1

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory that holds the replica on that broker, which must be one of the replicas."""
        return self.directories[self.replicas.index(broker_id)]

    def to_record(self, topic_id: bytes, index: int, version: int) -> PartitionRecord:
        """As a snapshot has it; what `version` cannot carry is left out."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if version >= 1 else [],
            eligible_leader_replicas=list(self.elr) if version >= 2 and self.elr else None,
            last_known_elr=list(self.last_known_elr) if version >= 2 and self.last_known_elr else None,
        )

    def __repr__(self) -> str:
        return (
            f"PartitionState(leader={self.leader} epoch={self.leader_epoch} replicas={self.replicas} isr={self.isr} "
            f"elr={self.elr} partition_epoch={self.partition_epoch})"
        )


class TopicState:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionState] = {}


class BrokerState:
    """The registration of one broker (KIP-631)."""

    __slots__ = (
        "broker_id",
        "cordoned_log_dirs",
        "end_points",
        "epoch",
        "features",
        "fenced",
        "in_controlled_shutdown",
        "incarnation_id",
        "is_migrating_zk_broker",
        "log_dirs",
        "rack",
    )

    def __init__(self, record: RegisterBrokerRecord) -> None:
        self.broker_id = record.broker_id
        self.epoch = record.broker_epoch
        self.incarnation_id = record.incarnation_id
        self.end_points: list[BrokerEndpoint] = record.end_points
        self.features: dict[str, BrokerFeature] = {feature.name: feature for feature in record.features}
        self.rack = record.rack
        self.fenced = record.fenced
        self.in_controlled_shutdown = record.in_controlled_shutdown
        self.is_migrating_zk_broker = record.is_migrating_zk_broker
        self.log_dirs: Uuids = tuple(record.log_dirs)
        self.cordoned_log_dirs: Uuids | None = (
            None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
        )

    @property
    def is_active(self) -> bool:
        """Whether it may lead, and join the in-sync replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: bytes) -> bool:
        """Whether a replica there can be served; a directory nobody named yet counts as online (KIP-858)."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory in self.log_dirs

    def to_record(self, version: int) -> RegisterBrokerRecord:
        cordoned = self.cordoned_log_dirs
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker and version >= 2,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=list(self.end_points),
            features=[feature for _, feature in sorted(self.features.items())],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown and version >= 1,
            log_dirs=list(self.log_dirs) if version >= 3 else [],
            cordoned_log_dirs=list(cordoned) if cordoned is not None and version >= 4 else None,
        )


class ControllerState:
    """The registration of one controller (KIP-919)."""

    __slots__ = ("controller_id", "end_points", "features", "incarnation_id", "zk_migration_ready")

    def __init__(self, record: RegisterControllerRecord) -> None:
        self.controller_id = record.controller_id
        self.incarnation_id = record.incarnation_id
        self.zk_migration_ready = record.zk_migration_ready
        self.end_points: list[ControllerEndpoint] = record.end_points
        self.features: dict[str, ControllerFeature] = {feature.name: feature for feature in record.features}

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=list(self.end_points),
            features=[feature for _, feature in sorted(self.features.items())],
        )
