"""The cluster itself: its brokers, its metadata quorum, its features, the disks of its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainstem.client.admin_base import AdminBase, raise_first
from mainstem.client.admin_types import (
    ClusterDescription,
    FeatureRange,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaLogDir,
)
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import error_for, raise_for
from mainstem.client.metadata import BrokerAddress
from mainstem.client.types import TopicPartition
from mainstem.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from mainstem.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
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

METADATA_TOPIC = "__cluster_metadata"


class ClusterAdmin(AdminBase):
    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """The cluster's id, its brokers, and the broker to send changes to."""

        async def ask(connection: BrokerConnection) -> ClusterDescription:
            version = connection.version_for(DescribeClusterRequest.API_KEY)
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False,
                # Before v2 a broker has no words for it, and lists only those that serve.
                include_fenced_brokers=include_fenced and version >= 2,
            )
            answer = await connection.ask(request, DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            brokers = [BrokerAddress(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
            fenced = frozenset(each.broker_id for each in answer.brokers if each.is_fenced)
            return ClusterDescription(answer.cluster_id, answer.controller_id, sorted(brokers), fenced)

        return await self._on_any(ask, timeout_ms, "describing the cluster")

    async def describe_quorum(self, *, timeout_ms: float | None = None) -> QuorumDescription:
        """Who leads the metadata quorum, and how far its voters and observers are."""

        async def ask(connection: BrokerConnection) -> QuorumDescription:
            request = DescribeQuorumRequest(
                topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
            )
            answer = await connection.ask(request, DescribeQuorumResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            each = answer.topics[0].partitions[0]
            raise_for(each.error_code, each.error_message, broker=connection.name)
            return QuorumDescription(
                each.leader_id,
                each.leader_epoch,
                each.high_watermark,
                [_replica(one) for one in each.current_voters],
                [_replica(one) for one in each.observers],
            )

        return await self._on_any(ask, timeout_ms, "describing the quorum")

    async def describe_features(self, *, timeout_ms: float | None = None) -> dict[str, FeatureRange]:
        """What each feature of the cluster is set to, and what the broker asked could take it to."""

        async def ask(connection: BrokerConnection) -> dict[str, FeatureRange]:
            request = ApiVersionsRequest(client_software_name="mainstem", client_software_version="1")
            answer = await connection.ask(request, ApiVersionsResponse)
            raise_for(answer.error_code, "features", broker=connection.name)
            finalized = {each.name: each.max_version_level for each in answer.finalized_features}
            return {
                each.name: FeatureRange(each.name, finalized.get(each.name, 0), each.min_version, each.max_version)
                for each in answer.supported_features
            }

        return await self._on_any(ask, timeout_ms, "describing features")

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Sets features of the cluster to these levels; lower ones need `downgrade`."""

        async def ask(connection: BrokerConnection) -> None:
            request = UpdateFeaturesRequest(
                timeout_ms=self.options.request_timeout_ms,
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=2 if downgrade else 1)
                    for name, level in levels.items()
                ],
                validate_only=validate_only,
            )
            answer = await connection.ask(request, UpdateFeaturesResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            raise_first(
                {
                    each.feature: error_for(each.error_code, each.error_message, broker=connection.name)
                    for each in answer.results
                    if each.error_code != 0
                }
            )

        await self._on_controller(ask, timeout_ms, "updating features")

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log directories of these brokers, or of all, with what lies in them."""

        async def ask(connection: BrokerConnection) -> list[LogDirDescription]:
            answer = await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            raise_for(answer.error_code, "log directories", broker=connection.name)
            return [
                LogDirDescription(
                    each.log_dir,
                    each.error_code,
                    each.total_bytes,
                    each.usable_bytes,
                    [
                        ReplicaLogDir(
                            TopicPartition(topic.name, one.partition_index),
                            one.partition_size,
                            one.offset_lag,
                            one.is_future_key,
                        )
                        for topic in each.topics
                        for one in topic.partitions
                    ],
                )
                for each in answer.results
            ]

        if brokers is None:
            return await self._on_every_broker(ask, timeout_ms, "describing log directories")
        return {
            node_id: await self._on_node(node_id, ask, timeout_ms, "describing log directories") for node_id in brokers
        }

    async def alter_replica_log_dirs(
        self, node_id: int, moves: Mapping[TopicPartition, str], *, timeout_ms: float | None = None
    ) -> None:
        """Moves replicas of a broker to other log directories of it."""

        async def ask(connection: BrokerConnection) -> None:
            folders: dict[str, dict[str, list[int]]] = {}
            for tp, path in moves.items():
                folders.setdefault(path, {}).setdefault(tp.topic, []).append(tp.partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[AlterReplicaLogDirTopic(name=topic, partitions=each) for topic, each in topics.items()],
                    )
                    for path, topics in folders.items()
                ]
            )
            answer = await connection.ask(request, AlterReplicaLogDirsResponse)
            raise_first(
                {
                    TopicPartition(topic.topic_name, each.partition_index): error_for(
                        each.error_code, broker=connection.name, topic=topic.topic_name, partition=each.partition_index
                    )
                    for topic in answer.results
                    for each in topic.partitions
                    if each.error_code != 0
                }
            )

        await self._on_node(node_id, ask, timeout_ms, "moving replicas")

    async def unregister_broker(self, node_id: int, *, timeout_ms: float | None = None) -> None:
        """Has the cluster forget a broker that is gone for good."""

        async def ask(connection: BrokerConnection) -> None:
            answer = await connection.ask(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse)
            raise_for(answer.error_code, answer.error_message, broker=str(node_id))

        await self._on_controller(ask, timeout_ms, "unregistering a broker")


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id, state.log_end_offset, state.last_fetch_timestamp, state.last_caught_up_timestamp
    )
