"""Topics and their partitions: create, list, describe, grow, delete; who leads them and where their replicas are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from mainstem.client.admin_base import AdminBase, by_topic, outcome
from mainstem.client.errors import KafkaError, raise_for
from mainstem.client.metadata import PartitionInfo
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.messages.k03_metadata import MetadataResponseTopic
from mainstem.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
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
from mainstem.protocol.uuids import uuid_to_text


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 leaves the number to the cluster's defaults; `assignments` says where replicas go."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """`topic_id` is None, and the numbers are -1, where the broker does not tell."""

    name: str
    topic_id: str | None
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: str | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Replicas of a partition that are on the move."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class TopicAdmin(AdminBase):
    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Creates topics; TopicExistsError and its like for those that cannot be."""
        wanted = {topic.name: topic for topic in topics}

        async def attempt(names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            connection = await self._controller()
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._limit_ms(timeout_ms),
                validate_only=validate_only,
            )
            answer = await connection.ask(request, CreateTopicsResponse)
            return {
                each.name: outcome(
                    _created(each), each.error_code, each.error_message, broker=connection.name, topic=each.name
                )
                for each in answer.topics
            }

        return await self._each(wanted, attempt, "creating topics", timeout_ms)

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        """Every topic that may be seen, by name."""

        async def attempt() -> list[TopicListing]:
            found = await self._topics(None)
            return [
                TopicListing(name, _id(topic.topic_id), topic.is_internal)
                for name, topic in sorted(found.items())
                if include_internal or not topic.is_internal
            ]

        return await self._once(attempt, "listing topics")

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """These topics with their partitions, or all of them."""
        if names is None:

            async def all_of_them() -> dict[str, TopicDescription]:
                return {name: _described(topic) for name, topic in sorted((await self._topics(None)).items())}

            return await self._once(all_of_them, "describing topics")

        async def attempt(asked: list[str]) -> dict[str, TopicDescription | KafkaError]:
            found = await self._topics(asked)
            return {name: outcome(_described(topic), topic.error_code, topic=name) for name, topic in found.items()}

        return await self._each(names, attempt, "describing topics")

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        async def attempt(asked: list[str]) -> dict[str, KafkaError | None]:
            connection = await self._controller()
            request = DeleteTopicsRequest(timeout_ms=self._limit_ms(timeout_ms))
            if connection.version_for(ApiKey.DELETE_TOPICS) >= 6:
                request.topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in asked]
            else:
                request.topic_names = asked
            answer = await connection.ask(request, DeleteTopicsResponse)
            return {
                str(each.name): outcome(
                    None, each.error_code, each.error_message, broker=connection.name, topic=each.name
                )
                for each in answer.responses
            }

        await self._each(names, attempt, "deleting topics", timeout_ms)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Grows topics to so many partitions in all. `assignments` says where the replicas of the new ones go."""
        where = assignments or {}

        async def attempt(asked: list[str]) -> dict[str, KafkaError | None]:
            connection = await self._controller()
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=totals[name],
                        assignments=[CreatePartitionsAssignment(broker_ids=list(each)) for each in where[name]]
                        if name in where
                        else None,
                    )
                    for name in asked
                ],
                timeout_ms=self._limit_ms(timeout_ms),
                validate_only=validate_only,
            )
            answer = await connection.ask(request, CreatePartitionsResponse)
            return {
                each.name: outcome(None, each.error_code, each.error_message, broker=connection.name, topic=each.name)
                for each in answer.results
            }

        await self._each(totals, attempt, "adding partitions", timeout_ms)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders anew, of all partitions by default; ElectionNotNeededError where the right one leads."""
        asked = None if partitions is None else by_topic(partitions)

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            connection = await self._controller()
            request = ElectLeadersRequest(
                election_type=kind,
                topic_partitions=None
                if asked is None
                else [TopicPartitions(topic=topic, partitions=theirs) for topic, theirs in asked.items()],
                timeout_ms=self._limit_ms(timeout_ms),
            )
            answer = await connection.ask(request, ElectLeadersResponse)
            raise_for(answer.error_code, "electing leaders", broker=connection.name)
            results: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.replica_election_results:
                for each in topic.partition_result:
                    tp = TopicPartition(topic.topic, each.partition_id)
                    where = {"topic": tp.topic, "partition": tp.partition}
                    results[tp] = outcome(None, each.error_code, each.error_message, **where)
            return results

        return await self._once(attempt, "electing leaders")

    async def alter_partition_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> None:
        """Moves partitions to these replicas; None calls a move off."""

        async def attempt(asked: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            connection = await self._controller()
            topics = [
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=at, replicas=_listed(moves[TopicPartition(topic, at)]))
                        for at in theirs
                    ],
                )
                for topic, theirs in by_topic(asked).items()
            ]
            request = AlterPartitionReassignmentsRequest(timeout_ms=self._limit_ms(timeout_ms), topics=topics)
            answer = await connection.ask(request, AlterPartitionReassignmentsResponse)
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(
                    None, each.error_code, each.error_message, topic=topic.name, partition=each.partition_index
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        await self._each(moves, attempt, "moving partitions", timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way."""
        asked = None if partitions is None else by_topic(partitions)

        async def attempt() -> dict[TopicPartition, Reassignment]:
            connection = await self._controller()
            topics = asked and [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=theirs)
                for topic, theirs in asked.items()
            ]
            answer = await connection.ask(
                ListPartitionReassignmentsRequest(topics=topics or None), ListPartitionReassignmentsResponse
            )
            raise_for(answer.error_code, answer.error_message, broker=connection.name)
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._once(attempt, "listing moves")

    def _limit_ms(self, timeout_ms: int | None) -> int:
        """How long a broker may take before it answers: no longer than somebody waits for the answer."""
        return min(
            self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms, self.options.request_timeout_ms
        )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.num_partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=at, broker_ids=list(ids))
            for at, ids in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _created(found: CreatableTopicResult) -> CreatedTopic:
    configs = {each.name: each.value for each in found.configs or ()}
    return CreatedTopic(found.name, _id(found.topic_id), found.num_partitions, found.replication_factor, configs)


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionInfo(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            each.error_code,
        )
        for each in sorted(topic.partitions, key=lambda one: one.partition_index)
    )
    return TopicDescription(topic.name or "", _id(topic.topic_id), topic.is_internal, partitions)


def _id(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else uuid_to_text(topic_id)


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
