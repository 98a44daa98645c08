"""Topics and their partitions: created, listed, described, grown, moved, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mainstem.client.admin_base import AdminBase, by_topic, raise_first
from mainstem.client.admin_types import CreatedTopic, NewTopic, PartitionDescription, Reassignment, TopicDescription
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, error_for, raise_for
from mainstem.client.metadata import TopicInfo
from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from mainstem.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from mainstem.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from mainstem.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from mainstem.protocol.schema import ZERO_UUID

_NAMES_AND_IDS_FROM = 6


class TopicsAdmin(AdminBase):
    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Creates topics; what each became. TopicExistsError where there is one of that name."""
        created: dict[str, CreatedTopic] = {}
        failed: dict[str, KafkaError] = {}
        left = {topic.name: topic for topic in topics}

        async def ask(connection: BrokerConnection) -> None:
            request = CreateTopicsRequest(
                topics=[_creatable(topic) for topic in left.values()],
                timeout_ms=self.options.request_timeout_ms,
                validate_only=validate_only,
            )
            answer = await connection.ask(request, CreateTopicsResponse)
            again: KafkaError | None = None
            for each in answer.topics:
                error = error_for(each.error_code, each.error_message, broker=connection.name, topic=each.name)
                if each.error_code == 0:
                    configs = {config.name: config.value for config in each.configs or ()}
                    created[each.name] = CreatedTopic(
                        each.name, each.topic_id, each.num_partitions, each.replication_factor, configs
                    )
                elif error.retriable:
                    again = error
                    continue
                else:
                    failed[each.name] = error
                left.pop(each.name, None)
            if again is not None:
                raise again

        await self._on_controller(ask, timeout_ms, "creating topics")
        raise_first(failed)
        return created

    async def delete_topics(self, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes topics with everything in them. UnknownTopicOrPartitionError where there is none of that name."""
        failed: dict[str, KafkaError] = {}
        names = list(dict.fromkeys(topics))
        left = list(names)

        async def ask(connection: BrokerConnection) -> None:
            version = connection.version_for(DeleteTopicsRequest.API_KEY)
            request = DeleteTopicsRequest(timeout_ms=self.options.request_timeout_ms)
            if version >= _NAMES_AND_IDS_FROM:
                request.topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in left]
            else:
                request.topic_names = list(left)
            answer = await connection.ask(request, DeleteTopicsResponse, version=version)
            again: KafkaError | None = None
            for each in answer.responses:
                error = error_for(each.error_code, each.error_message, broker=connection.name, topic=each.name)
                # A topic that is not there will not be there a moment later, whatever the code says of retries.
                if each.error_code != 0 and error.retriable and each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    again = error
                    continue
                if each.error_code != 0:
                    failed[each.name or ""] = error
                if each.name in left:
                    left.remove(each.name)
            if again is not None:
                raise again

        await self._on_controller(ask, timeout_ms, "deleting topics")
        self._cluster.unwant(names)
        raise_first(failed)

    async def list_topics(self, *, internal: bool = False, timeout_ms: float | None = None) -> list[str]:
        """The names of all topics; of those that Kafka itself uses only where `internal` asks for them."""
        found = await self._retrying(self._cluster.all_topics, timeout_ms, "listing topics")
        return sorted(name for name, topic in found.items() if internal or not topic.is_internal)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of these topics, or of all."""
        if topics is None:
            found = await self._retrying(self._cluster.all_topics, timeout_ms, "describing topics")
            return {name: _description(found[name]) for name in sorted(found)}
        names = list(dict.fromkeys(topics))
        failed: dict[str, KafkaError] = {}

        async def ask() -> dict[str, TopicInfo]:
            there, missing = await self._cluster.topics(names)
            for name in names:
                if name not in there:
                    error = missing.get(name) or error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)
                    # A topic that is not there will not be there a moment later, whatever the code says of retries.
                    if error.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise error
                    failed[name] = error
            return there

        found = await self._retrying(ask, timeout_ms, "describing topics")
        raise_first(failed)
        return {name: _description(found[name]) for name in names}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Has topics grow to so many partitions. `assignments` names the brokers of each new one."""
        failed: dict[str, KafkaError] = {}

        async def ask(connection: BrokerConnection) -> None:
            failed.clear()
            topics = []
            for name, count in counts.items():
                given = (assignments or {}).get(name)
                placed = (
                    None if given is None else [CreatePartitionsAssignment(broker_ids=list(each)) for each in given]
                )
                topics.append(CreatePartitionsTopic(name=name, count=count, assignments=placed))
            request = CreatePartitionsRequest(
                topics=topics, timeout_ms=self.options.request_timeout_ms, validate_only=validate_only
            )
            answer = await connection.ask(request, CreatePartitionsResponse)
            for each in answer.results:
                if each.error_code == ErrorCode.NOT_CONTROLLER:
                    raise error_for(each.error_code, broker=connection.name)
                if each.error_code != 0:
                    failed[each.name] = error_for(
                        each.error_code, each.error_message, broker=connection.name, topic=each.name
                    )

        await self._on_controller(ask, timeout_ms, "creating partitions")
        raise_first(failed)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Has the preferred replicas lead, or with `unclean` any that lives, where nobody does.

        What came of it for each partition: None where one was elected, ElectionNotNeededError where it led already.
        """
        asked = None if partitions is None else by_topic(partitions)

        async def ask(connection: BrokerConnection) -> dict[TopicPartition, KafkaError | None]:
            request = ElectLeadersRequest(
                election_type=1 if unclean else 0,
                topic_partitions=None
                if asked is None
                else [TopicPartitions(topic=name, partitions=each) for name, each in asked.items()],
                timeout_ms=self.options.request_timeout_ms,
            )
            answer = await connection.ask(request, ElectLeadersResponse)
            raise_for(answer.error_code, "electing leaders", broker=connection.name)
            results: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.replica_election_results:
                for each in topic.partition_result:
                    tp = TopicPartition(topic.topic, each.partition_id)
                    results[tp] = None
                    if each.error_code != 0:
                        results[tp] = error_for(
                            each.error_code, each.error_message, topic=tp.topic, partition=tp.partition
                        )
            return results

        return await self._on_controller(ask, timeout_ms, "electing leaders")

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> None:
        """Moves partitions to other brokers; None cancels a move that is under way."""
        failed: dict[TopicPartition, KafkaError] = {}

        async def ask(connection: BrokerConnection) -> None:
            failed.clear()
            topics: dict[str, list[ReassignablePartition]] = {}
            for tp, brokers in replicas.items():
                wanted = None if brokers is None else list(brokers)
                topics.setdefault(tp.topic, []).append(
                    ReassignablePartition(partition_index=tp.partition, replicas=wanted)
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self.options.request_timeout_ms,
                topics=[ReassignableTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            answer = await connection.ask(request, AlterPartitionReassignmentsResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            for topic in answer.responses:
                for each in topic.partitions:
                    if each.error_code != 0:
                        tp = TopicPartition(topic.name, each.partition_index)
                        failed[tp] = error_for(
                            each.error_code, each.error_message, topic=tp.topic, partition=tp.partition
                        )

        await self._on_controller(ask, timeout_ms, "moving partitions")
        raise_first(failed)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way."""
        asked = None if partitions is None else by_topic(partitions)

        async def ask(connection: BrokerConnection) -> dict[TopicPartition, Reassignment]:
            topics = None
            if asked is not None:
                topics = [
                    ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in asked.items()
                ]
            request = ListPartitionReassignmentsRequest(timeout_ms=self.options.request_timeout_ms, topics=topics)
            answer = await connection.ask(request, ListPartitionReassignmentsResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._on_controller(ask, timeout_ms, "listing moves of partitions")


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=str(value)) for name, value in topic.configs.items()],
    )


def _description(info: TopicInfo) -> TopicDescription:
    partitions = [
        PartitionDescription(each.partition, each.leader, each.epoch, each.replicas, each.isr, each.offline)
        for _, each in sorted(info.partitions.items())
    ]
    return TopicDescription(info.name, info.topic_id, info.is_internal, partitions)
