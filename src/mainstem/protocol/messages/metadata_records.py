"""The records of the metadata log: what the controller decides and every broker replays.

A record's value is framed by its type and version, see `record_framing`; all of them are flexible in every version.
KIP-631 tells what each one means.
"""

from __future__ import annotations

from mainstem.protocol.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Struct,
    Uint16,
    Uuid,
    field,
)


class BrokerEndpoint(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")
    security_protocol: Int16 = field("0+")


class BrokerFeature(Struct):
    name: Str = field("0+")
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    broker_id: Int32 = field("0+")
    is_migrating_zk_broker: Bool = field("2+", default=False)
    incarnation_id: Uuid = field("0+")
    broker_epoch: Int64 = field("0+")
    end_points: list[BrokerEndpoint] = field("0+")
    features: list[BrokerFeature] = field("0+")
    rack: Str | None = field("0+")
    fenced: Bool = field("0+", default=True)
    in_controlled_shutdown: Bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", default_factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+")


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    name: Str = field("0+")
    topic_id: Uuid = field("0+")


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    partition_id: Int32 = field("0+", default=-1)
    topic_id: Uuid = field("0+")
    replicas: list[Int32] = field("0+")
    isr: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    leader: Int32 = field("0+", default=-1)
    leader_recovery_state: Int8 = field("0+", default=0, tag=0)
    leader_epoch: Int32 = field("0+", default=-1)
    partition_epoch: Int32 = field("0+", default=-1)
    directories: list[Uuid] = field("1+", default_factory=list)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    name: Str = field("0+")
    value: Str | None = field("0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    partition_id: Int32 = field("0+", default=-1)
    topic_id: Uuid = field("0+")
    isr: list[Int32] | None = field("0+", default=None, tag=0)
    leader: Int32 = field("0+", default=-2, tag=1)
    replicas: list[Int32] | None = field("0+", default=None, tag=2)
    removing_replicas: list[Int32] | None = field("0+", default=None, tag=3)
    adding_replicas: list[Int32] | None = field("0+", default=None, tag=4)
    leader_recovery_state: Int8 = field("0+", default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7)


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    id: Int32 = field("0+")
    epoch: Int64 = field("0+")


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    id: Int32 = field("0+")
    epoch: Int64 = field("0+")


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    topic_id: Uuid = field("0+")


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    owner: Str = field("0+")
    requester: Str = field("0+")
    renewers: list[Str] = field("0+")
    issue_timestamp: Int64 = field("0+")
    max_timestamp: Int64 = field("0+")
    expiration_timestamp: Int64 = field("0+")
    token_id: Str = field("0+")


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")
    salt: Bytes = field("0+")
    stored_key: Bytes = field("0+")
    server_key: Bytes = field("0+")
    iterations: Int32 = field("0+")


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    name: Str = field("0+")
    feature_level: Int16 = field("0+")


class EntityData(Struct):
    entity_type: Str = field("0+")
    entity_name: Str | None = field("0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = field("0+")
    key: Str = field("0+")
    value: Float64 = field("0+")
    remove: Bool = field("0+")


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    next_producer_id: Int64 = field("0+")


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+")
    fenced: Int8 = field("0+", default=0, tag=0)
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1)
    log_dirs: list[Uuid] = field("2+", default_factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3)


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    id: Uuid = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: Str = field("0+")
    pattern_type: Int8 = field("0+")
    principal: Str = field("0+")
    host: Str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    id: Uuid = field("0+")


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    zk_migration_state: Int8 = field("0+")


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    name: Str = field("0+")
    mechanism: Int8 = field("0+")


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    name: Str | None = field("0+", default=None, tag=0)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    reason: Str | None = field("0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    token_id: Str = field("0+")


class ControllerEndpoint(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")
    security_protocol: Int16 = field("0+")


class ControllerFeature(Struct):
    name: Str = field("0+")
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")
    incarnation_id: Uuid = field("0+")
    zk_migration_ready: Bool = field("0+")
    end_points: list[ControllerEndpoint] = field("0+")
    features: list[ControllerFeature] = field("0+")


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    topic_name: Str = field("0+")
