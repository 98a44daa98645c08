"""The cluster as a whole: its brokers and controller, their directories, the metadata quorum and its features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mainstem._version import VERSION
from mainstem.client.admin_base import AdminBase, outcome
from mainstem.client.errors import KafkaError, raise_for
from mainstem.client.metadata import BrokerAddress
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from mainstem.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from mainstem.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from mainstem.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from mainstem.protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller_id` is -1 while there is none. A fenced broker is registered and not in service."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    fenced: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in one directory. `is_future` while it is a copy that will take the replica's place."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker; `error` is why it is offline. Bytes are -1 where the broker does not tell."""

    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaInfo]


class QuorumReplica(NamedTuple):
    node_id: int
    log_end: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class FeatureRange(NamedTuple):
    """What a feature of the cluster is set to (0: not at all), and to what the broker that was asked could take it."""

    name: str
    finalized: int
    supported_min: int
    supported_max: int


class BrokerVersions(NamedTuple):
    """The first and last version of each API that a broker speaks, and the levels of the cluster's features."""

    apis: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]


class ClusterAdmin(AdminBase):
    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        async def attempt() -> ClusterDescription:
            connection = await self._any()
            version = connection.version_for(ApiKey.DESCRIBE_CLUSTER)
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced and version >= 2
            )
            answer = await connection.ask(request, DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            return ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(
                    BrokerAddress(each.broker_id, each.host, each.port, each.rack)
                    for each in sorted(answer.brokers, key=lambda one: one.broker_id)
                ),
                frozenset(each.broker_id for each in answer.brokers if each.is_fenced),
            )

        return await self._once(attempt, "describing the cluster")

    async def broker_versions(self, node_id: int) -> BrokerVersions:
        async def attempt() -> BrokerVersions:
            await self._any()
            connection = await self.cluster.node(node_id)
            return BrokerVersions(dict(connection.versions), dict(connection.features))

        return await self._once(attempt, f"connecting to broker {node_id}")

    async def describe_features(self) -> dict[str, FeatureRange]:
        async def attempt() -> dict[str, FeatureRange]:
            connection = await self._any()
            request = ApiVersionsRequest(client_software_name="mainstem", client_software_version=VERSION)
            answer = await connection.ask(request, ApiVersionsResponse)
            raise_for(answer.error_code, "describing features", broker=connection.name)
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            return {
                each.name: FeatureRange(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
                for each in sorted(answer.supported_features, key=lambda one: one.name)
            }

        return await self._once(attempt, "describing features")

    async def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, validate_only: bool = False
    ) -> None:
        """Takes features of the cluster to these levels; a lower one than it has needs `allow_downgrade`."""

        async def attempt() -> None:
            connection = await self._controller()
            # An upgrade, or a downgrade that loses nothing (KIP-584).
            kind = 2 if allow_downgrade else 1
            request = UpdateFeaturesRequest(
                timeout_ms=self.options.request_timeout_ms,
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                    for name, level in levels.items()
                ],
                validate_only=validate_only,
            )
            answer = await connection.ask(request, UpdateFeaturesResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            for each in answer.results:
                raise_for(each.error_code, f"feature {each.feature}: {each.error_message}", broker=connection.name)

        await self._once(attempt, "updating features")

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> dict[int, dict[str, LogDir]]:
        """The directories of these brokers, or of all, by path."""

        async def attempt(asked: list[int]) -> dict[int, dict[str, LogDir] | KafkaError]:
            await self._any()
            results: dict[int, dict[str, LogDir] | KafkaError] = {}
            for node_id in asked:
                connection = await self.cluster.node(node_id)
                answer = await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
                found = {each.log_dir: _log_dir(each) for each in answer.results}
                results[node_id] = outcome(found, answer.error_code, "log directories", broker=connection.name)
            return results

        ids = await self._once(self._brokers, "listing brokers") if brokers is None else brokers
        return await self._each(ids, attempt, "describing log directories")

    async def alter_replica_log_dirs(self, node_id: int, moves: Mapping[TopicPartition, str]) -> None:
        """Moves replicas of a broker to other directories of it."""

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            await self._any()
            connection = await self.cluster.node(node_id)
            folders: dict[str, dict[str, list[int]]] = {}
            for tp in asked:
                folders.setdefault(moves[tp], {}).setdefault(tp.topic, []).append(tp.partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[AlterReplicaLogDirTopic(name=topic, partitions=at) for topic, at in topics.items()],
                    )
                    for path, topics in folders.items()
                ]
            )
            answer = await connection.ask(request, AlterReplicaLogDirsResponse)
            return {
                TopicPartition(topic.topic_name, each.partition_index): outcome(
                    None,
                    each.error_code,
                    broker=connection.name,
                    topic=topic.topic_name,
                    partition=each.partition_index,
                )
                for topic in answer.results
                for each in topic.partitions
            }

        await self._each(moves, attempt, "moving replicas")

    async def describe_quorum(self) -> QuorumInfo:
        """The quorum of controllers that keeps the cluster's metadata."""

        async def attempt() -> QuorumInfo:
            connection = await self._any()
            partition = PartitionData(partition_index=0)
            request = DescribeQuorumRequest(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])])
            answer = await connection.ask(request, DescribeQuorumResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            found = answer.topics[0].partitions[0]
            raise_for(found.error_code, found.error_message, broker=connection.name)
            return QuorumInfo(
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                tuple(map(_quorum_replica, found.current_voters)),
                tuple(map(_quorum_replica, found.observers)),
            )

        return await self._once(attempt, "describing the quorum")

    async def unregister_broker(self, node_id: int) -> None:
        """Has the cluster forget a broker that is gone for good."""

        async def attempt() -> None:
            connection = await self._controller()
            answer = await connection.ask(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse)
            raise_for(answer.error_code, answer.error_message, broker=str(node_id))

        await self._once(attempt, "unregistering a broker")


def _log_dir(found: DescribeLogDirsResult) -> LogDir:
    error = outcome(None, found.error_code, found.log_dir)
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in found.topics
        for each in topic.partitions
    }
    return LogDir(found.log_dir, error, found.total_bytes, found.usable_bytes, replicas)


def _quorum_replica(found: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        found.replica_id, found.log_end_offset, found.last_fetch_timestamp, found.last_caught_up_timestamp
    )
