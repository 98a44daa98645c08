"""The cluster's metadata as its records make it: the one state that controller and brokers share.

`replay` takes the records of the metadata log in order; `to_records` gives records that make the same image, which is
what a snapshot holds. Rules:

- Nothing but `replay` changes an image. Replaying a log gives the same image as replaying any snapshot of a prefix of
  it and then the rest, byte for byte of `to_records` (R11).
- A record about something that does not exist (a partition of no topic, a change to no broker or to another epoch of
  it) means that log and image have parted: ReplayError, which is fatal to a controller and to a broker alike
  (KAFKA-14275). Removing what is not there is only fine where Kafka finds it fine: configs, quotas.
- Records between BeginTransaction and EndTransaction become visible together; AbortTransaction drops them (KIP-868).
- Every type of record is kept, also those that nothing here acts on: ACLs, quotas, SCRAM credentials, delegation
  tokens, features of other subsystems. What another broker wrote must survive our snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from mainstem.core.controller import versions
from mainstem.core.controller.states import BrokerState, ControllerState, Interner, PartitionState, TopicState
from mainstem.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from mainstem.protocol.schema import Message
from mainstem.protocol.uuids import uuid_to_text

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""Types of config resources, as ConfigRecord and the config APIs number them."""

Resource = tuple[int, str]
QuotaEntity = tuple[tuple[str, str | None], ...]


class ReplayError(Exception):
    """The log holds a record that does not fit what came before it."""


class ImageDelta:
    """What a run of records changed. Keys of dicts, so that their order is the log's."""

    __slots__ = ("brokers", "configs", "controllers", "features", "partitions", "removed_topics", "topics")

    def __init__(self) -> None:
        self.topics: dict[bytes, None] = {}
        """Ids of topics that were created, in this delta."""
        self.removed_topics: dict[bytes, TopicState] = {}
        self.partitions: dict[tuple[bytes, int], None] = {}
        """Topic id and index of partitions that were created or changed and are still there."""
        self.configs: dict[Resource, None] = {}
        self.brokers: dict[int, None] = {}
        self.controllers: dict[int, None] = {}
        self.features: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.removed_topics
            or self.partitions
            or self.configs
            or self.brokers
            or self.controllers
            or self.features
        )


class ClusterImage:
    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self.similar_names: dict[str, dict[str, None]] = {}
        """Topics by their name with dots as underscores, where it has any: metrics cannot tell those apart."""
        self.brokers: dict[int, BrokerState] = {}
        self.controllers: dict[int, ControllerState] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        """Finalized levels by feature, `metadata.version` among them; a feature at level 0 is not here."""
        self.producer_ids: ProducerIdsRecord | None = None
        self.acls: dict[bytes, AccessControlEntryRecord] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.scram: dict[tuple[int, str], UserScramCredentialRecord] = {}
        self.tokens: dict[str, DelegationTokenRecord] = {}
        self.zk_migration_state: int | None = None
        self.partition_count = 0
        self._interner = Interner()
        self._transaction: list[Message] | None = None

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def metadata_version(self) -> int:
        return self.features.get(versions.METADATA_VERSION, versions.METADATA_VERSION_MIN)

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def next_producer_id(self) -> int:
        return 0 if self.producer_ids is None else self.producer_ids.next_producer_id

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """What was set for a resource, and only that; not to be changed."""
        return self.configs.get((resource_type, name), {})

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def partition_by_id(self, topic_id: bytes, index: int) -> PartitionState | None:
        found = self.topics_by_id.get(topic_id)
        return None if found is None else found.partitions.get(index)

    def partitions_of(self, broker_id: int) -> Iterator[tuple[TopicState, int, PartitionState]]:
        """Every partition with a replica on that broker."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    yield topic, index, partition

    # -- replaying -------------------------------------------------------------------------------------------------

    def replay_all(self, replayed: Iterable[Message], delta: ImageDelta | None = None) -> None:
        noted = ImageDelta() if delta is None else delta
        for record in replayed:
            self.replay(record, noted)

    def replay(self, record: Message, delta: ImageDelta | None = None) -> None:
        """Takes one record; `delta`, when given, is told what it changed."""
        if self._transaction is not None and type(record) not in _TRANSACTION_ENDS:
            if type(record) is BeginTransactionRecord:
                raise ReplayError("a transaction begins inside a transaction")
            self._transaction.append(record)
            return
        self._apply(record, ImageDelta() if delta is None else delta)

    def _apply(self, record: Message, delta: ImageDelta) -> None:
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise ReplayError(f"{type(record).__name__} is no record of the metadata log")
        replay(self, record, delta)

    def _begin_transaction(self, record: BeginTransactionRecord, delta: ImageDelta) -> None:
        self._transaction = []

    def _end_transaction(self, record: EndTransactionRecord, delta: ImageDelta) -> None:
        if self._transaction is None:
            raise ReplayError("a transaction ends that never began")
        held, self._transaction = self._transaction, None
        for each in held:
            self._apply(each, delta)

    def _abort_transaction(self, record: AbortTransactionRecord, delta: ImageDelta) -> None:
        if self._transaction is None:
            raise ReplayError("a transaction is aborted that never began")
        self._transaction = None

    def _no_op(self, record: NoOpRecord, delta: ImageDelta) -> None:
        pass

    # Topics

    def _topic(self, record: TopicRecord, delta: ImageDelta) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise ReplayError(f"topic {record.name} with id {uuid_to_text(record.topic_id)} is there already")
        topic = TopicState(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        if "." in record.name or "_" in record.name:
            self.similar_names.setdefault(record.name.replace(".", "_"), {})[record.name] = None
        delta.topics[record.topic_id] = None

    def _known_topic(self, topic_id: bytes, record: Message) -> TopicState:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ReplayError(f"{type(record).__name__} for the unknown topic id {uuid_to_text(topic_id)}")
        return topic

    def _partition(self, record: PartitionRecord, delta: ImageDelta) -> None:
        topic = self._known_topic(record.topic_id, record)
        if record.partition_id not in topic.partitions:
            self.partition_count += 1
        topic.partitions[record.partition_id] = PartitionState(record, self._interner)
        delta.partitions[(topic.topic_id, record.partition_id)] = None

    def _partition_change(self, record: PartitionChangeRecord, delta: ImageDelta) -> None:
        topic = self._known_topic(record.topic_id, record)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise ReplayError(f"PartitionChangeRecord for the unknown partition {topic.name}-{record.partition_id}")
        partition.merge(record, self._interner)
        delta.partitions[(topic.topic_id, record.partition_id)] = None

    def _clear_elr(self, record: ClearElrRecord, delta: ImageDelta) -> None:
        """Of one topic, or of all when the name is empty."""
        if record.topic_name and record.topic_name not in self.topics:
            raise ReplayError(f"ClearElrRecord for the unknown topic {record.topic_name}")
        cleared = [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        for topic in cleared:
            for index, partition in topic.partitions.items():
                if partition.elr or partition.last_known_elr:
                    change = PartitionChangeRecord(
                        topic_id=topic.topic_id, partition_id=index, eligible_leader_replicas=[], last_known_elr=[]
                    )
                    partition.merge(change, self._interner)
                    delta.partitions[(topic.topic_id, index)] = None

    def _remove_topic(self, record: RemoveTopicRecord, delta: ImageDelta) -> None:
        topic = self._known_topic(record.topic_id, record)
        del self.topics_by_id[topic.topic_id]
        del self.topics[topic.name]
        similar = self.similar_names.get(topic.name.replace(".", "_"))
        if similar is not None and similar.pop(topic.name, "") is None and not similar:
            del self.similar_names[topic.name.replace(".", "_")]
        self.partition_count -= len(topic.partitions)
        for index in topic.partitions:
            delta.partitions.pop((topic.topic_id, index), None)
        delta.topics.pop(topic.topic_id, None)
        delta.removed_topics[topic.topic_id] = topic
        if self.configs.pop((TOPIC, topic.name), None) is not None:
            delta.configs[(TOPIC, topic.name)] = None

    # Configs and features

    def _config(self, record: ConfigRecord, delta: ImageDelta) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
        elif resource in self.configs:
            self.configs[resource].pop(record.name, None)
            if not self.configs[resource]:
                del self.configs[resource]
        delta.configs[resource] = None

    def _feature_level(self, record: FeatureLevelRecord, delta: ImageDelta) -> None:
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        delta.features[record.name] = None

    # Brokers and controllers

    def _register_broker(self, record: RegisterBrokerRecord, delta: ImageDelta) -> None:
        self.brokers[record.broker_id] = BrokerState(record)
        delta.brokers[record.broker_id] = None

    def _known_broker(self, broker_id: int, epoch: int, record: Message, delta: ImageDelta) -> BrokerState:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"{type(record).__name__} for broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"{type(record).__name__} for broker {broker_id} epoch {epoch}, which has {broker.epoch}")
        delta.brokers[broker_id] = None
        return broker

    def _unregister_broker(self, record: UnregisterBrokerRecord, delta: ImageDelta) -> None:
        self._known_broker(record.broker_id, record.broker_epoch, record, delta)
        del self.brokers[record.broker_id]

    def _fence_broker(self, record: FenceBrokerRecord, delta: ImageDelta) -> None:
        self._known_broker(record.id, record.epoch, record, delta).fenced = True

    def _unfence_broker(self, record: UnfenceBrokerRecord, delta: ImageDelta) -> None:
        self._known_broker(record.id, record.epoch, record, delta).fenced = False

    def _broker_change(self, record: BrokerRegistrationChangeRecord, delta: ImageDelta) -> None:
        broker = self._known_broker(record.broker_id, record.broker_epoch, record, delta)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = tuple(record.cordoned_log_dirs)

    def _register_controller(self, record: RegisterControllerRecord, delta: ImageDelta) -> None:
        self.controllers[record.controller_id] = ControllerState(record)
        delta.controllers[record.controller_id] = None

    # What is kept for others

    def _producer_ids(self, record: ProducerIdsRecord, delta: ImageDelta) -> None:
        self.producer_ids = record

    def _acl(self, record: AccessControlEntryRecord, delta: ImageDelta) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: RemoveAccessControlEntryRecord, delta: ImageDelta) -> None:
        if self.acls.pop(record.id, None) is None:
            raise ReplayError(f"an ACL is removed that is not there: {uuid_to_text(record.id)}")

    def _quota(self, record: ClientQuotaRecord, delta: ImageDelta) -> None:
        entity = tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda p: p[0]))
        if not record.remove:
            self.quotas.setdefault(entity, {})[record.key] = record.value
        elif entity in self.quotas:
            self.quotas[entity].pop(record.key, None)
            if not self.quotas[entity]:
                del self.quotas[entity]

    def _scram(self, record: UserScramCredentialRecord, delta: ImageDelta) -> None:
        self.scram[(record.mechanism, record.name)] = record

    def _remove_scram(self, record: RemoveUserScramCredentialRecord, delta: ImageDelta) -> None:
        if self.scram.pop((record.mechanism, record.name), None) is None:
            raise ReplayError(f"a SCRAM credential is removed that is not there: {record.name}")

    def _token(self, record: DelegationTokenRecord, delta: ImageDelta) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord, delta: ImageDelta) -> None:
        if self.tokens.pop(record.token_id, None) is None:
            raise ReplayError(f"a delegation token is removed that is not there: {record.token_id}")

    def _zk_migration_state(self, record: ZkMigrationStateRecord, delta: ImageDelta) -> None:
        self.zk_migration_state = record.zk_migration_state

    # -- snapshots -------------------------------------------------------------------------------------------------

    def to_records(self) -> Iterator[Message]:
        """Records that make this image from nothing, in an order that depends on its content alone.

        `metadata.version` comes first, because it decides how the rest is written.
        """
        assert self._transaction is None, "a snapshot inside a transaction would show half of it"
        yield from self._feature_records()
        yield from self._cluster_records()
        yield from self._topic_records()
        for resource_type, name in sorted(self.configs):
            for key, value in sorted(self.configs[(resource_type, name)].items()):
                yield ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        yield from self._quota_records()
        if self.producer_ids is not None:
            yield self.producer_ids
        for _, acl in sorted(self.acls.items()):
            yield acl
        for _, credential in sorted(self.scram.items()):
            yield credential
        for _, token in sorted(self.tokens.items()):
            yield token
        if self.zk_migration_state is not None:
            yield ZkMigrationStateRecord(zk_migration_state=self.zk_migration_state)

    def encoded_records(self) -> Iterator[bytes]:
        """The same as values of records, in the versions that the finalized metadata.version allows."""
        metadata_version = self.metadata_version
        for record in self.to_records():
            yield versions.encode_record(record, metadata_version)

    def _feature_records(self) -> Iterator[Message]:
        level = self.features.get(versions.METADATA_VERSION)
        if level is not None:
            yield FeatureLevelRecord(name=versions.METADATA_VERSION, feature_level=level)
        for name, other in sorted(self.features.items()):
            if name != versions.METADATA_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=other)

    def _cluster_records(self) -> Iterator[Message]:
        version = versions.register_broker_version(self.metadata_version)
        for _, broker in sorted(self.brokers.items()):
            yield broker.to_record(version)
        if versions.has_controller_registration(self.metadata_version):
            for _, controller in sorted(self.controllers.items()):
                yield controller.to_record()

    def _topic_records(self) -> Iterator[Message]:
        version = versions.partition_version(self.metadata_version)
        for name, topic in sorted(self.topics.items()):
            yield TopicRecord(name=name, topic_id=topic.topic_id)
            for index, partition in sorted(topic.partitions.items()):
                yield partition.to_record(topic.topic_id, index, version)

    def _quota_records(self) -> Iterator[Message]:
        # A null name is the default of its type; the empty string sorts with it, so both decide.
        for entity in sorted(self.quotas, key=lambda e: [(kind, name is not None, name or "") for kind, name in e]):
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            for key, value in sorted(self.quotas[entity].items()):
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


_TRANSACTION_ENDS: Final[tuple[type[Message], ...]] = (
    EndTransactionRecord,
    AbortTransactionRecord,
    BeginTransactionRecord,
)

_REPLAY: Final[dict[type, Callable[[ClusterImage, Any, ImageDelta], None]]] = {
    RegisterBrokerRecord: ClusterImage._register_broker,
    UnregisterBrokerRecord: ClusterImage._unregister_broker,
    TopicRecord: ClusterImage._topic,
    PartitionRecord: ClusterImage._partition,
    ConfigRecord: ClusterImage._config,
    PartitionChangeRecord: ClusterImage._partition_change,
    FenceBrokerRecord: ClusterImage._fence_broker,
    UnfenceBrokerRecord: ClusterImage._unfence_broker,
    RemoveTopicRecord: ClusterImage._remove_topic,
    DelegationTokenRecord: ClusterImage._token,
    UserScramCredentialRecord: ClusterImage._scram,
    FeatureLevelRecord: ClusterImage._feature_level,
    ClientQuotaRecord: ClusterImage._quota,
    ProducerIdsRecord: ClusterImage._producer_ids,
    BrokerRegistrationChangeRecord: ClusterImage._broker_change,
    AccessControlEntryRecord: ClusterImage._acl,
    RemoveAccessControlEntryRecord: ClusterImage._remove_acl,
    NoOpRecord: ClusterImage._no_op,
    ZkMigrationStateRecord: ClusterImage._zk_migration_state,
    RemoveUserScramCredentialRecord: ClusterImage._remove_scram,
    BeginTransactionRecord: ClusterImage._begin_transaction,
    EndTransactionRecord: ClusterImage._end_transaction,
    AbortTransactionRecord: ClusterImage._abort_transaction,
    RemoveDelegationTokenRecord: ClusterImage._remove_token,
    RegisterControllerRecord: ClusterImage._register_controller,
    ClearElrRecord: ClusterImage._clear_elr,
}
