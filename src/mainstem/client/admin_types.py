"""What an admin is given and gives back: topics, configs, groups, transactions, the cluster. All plain tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from mainstem.client.metadata import BrokerAddress
from mainstem.client.types import TopicPartition


class NewTopic(NamedTuple):
    """A topic to create; -1 leaves it to the broker's defaults.

    `assignments` names the brokers of each partition instead, the leader first; then the numbers are left out.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]


class PartitionDescription(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something that has settings. A broker's name is its id, or empty for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        return cls(ResourceType.GROUP, name)


class ConfigSource(IntEnum):
    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    kind: str = "UNKNOWN"
    """Kafka's name for the type of the value: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD."""

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change to one setting. APPEND and SUBTRACT are for settings that are lists."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET

    @classmethod
    def to(cls, name: str, value: str | None) -> ConfigChange:
        """To a value, or with None back to the default."""
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        return cls(name, None if value is None else str(value), operation)


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: BrokerAddress
    members: list[MemberDescription]


class OffsetSpec(IntEnum):
    """Which offset of a partition; a time in milliseconds stands for the first record from then on."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class ProducerDescription(NamedTuple):
    """A producer that a partition knows. The offset is where its open transaction begins, -1 without one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: list[TopicPartition]


class ClusterDescription(NamedTuple):
    """`fenced` are brokers that are registered and not in service, where they were asked for."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerAddress]
    fenced: frozenset[int] = frozenset()


class QuorumReplica(NamedTuple):
    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class ReplicaLogDir(NamedTuple):
    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaLogDir]


class FeatureRange(NamedTuple):
    """What a feature is set to, and what the broker could take it to."""

    name: str
    finalized: int
    supported_min: int
    supported_max: int


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
