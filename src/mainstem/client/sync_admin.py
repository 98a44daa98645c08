"""The synchronous admin: the same methods as `AsyncAdmin`, each waiting for its answer.

with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
    admin.create_topics([NewTopic("orders", 3)])
    print(admin.describe_topics(["orders"]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    FeatureRange,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    ProducerDescription,
    QuorumDescription,
    Reassignment,
    ResourceType,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from mainstem.client.errors import KafkaError
from mainstem.client.sync import loop_thread
from mainstem.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class Admin:
    """Options are keyword arguments, by Kafka's names in Python's spelling: see `AdminOptions`."""

    def __init__(self, **options: Any) -> None:
        self._async = AsyncAdmin(**options)
        self._runner = loop_thread()
        self._runner.run(self._async.start())

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._async.close())

    def connect(self) -> None:
        """Connects to whichever broker answers, without a retry; NoBrokersAvailableError where none does."""
        self._runner.run(self._async.connect())

    # Topics

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Creates topics; what each became. TopicExistsError where there is one of that name."""
        return self._runner.run(self._async.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes topics with everything in them. UnknownTopicOrPartitionError where there is none of that name."""
        self._runner.run(self._async.delete_topics(topics, timeout_ms=timeout_ms))

    def list_topics(self, *, internal: bool = False, timeout_ms: float | None = None) -> list[str]:
        """The names of all topics; of those that Kafka itself uses only where `internal` asks for them."""
        return self._runner.run(self._async.list_topics(internal=internal, timeout_ms=timeout_ms))

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of these topics, or of all."""
        return self._runner.run(self._async.describe_topics(topics, timeout_ms=timeout_ms))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Has topics grow to so many partitions. `assignments` names the brokers of each new one."""
        self._runner.run(
            self._async.create_partitions(
                counts, assignments=assignments, validate_only=validate_only, timeout_ms=timeout_ms
            )
        )

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Has the preferred replicas lead, or with `unclean` any that lives, where nobody does.

        What came of it for each partition: None where one was elected, ElectionNotNeededError where it led already.
        """
        return self._runner.run(self._async.elect_leaders(partitions, unclean=unclean, timeout_ms=timeout_ms))

    def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> None:
        """Moves partitions to other brokers; None cancels a move that is under way."""
        self._runner.run(self._async.alter_partition_reassignments(replicas, timeout_ms=timeout_ms))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way."""
        return self._runner.run(self._async.list_partition_reassignments(partitions, timeout_ms=timeout_ms))

    # Configs

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of each resource by name: all of them, or those that `names` asks for."""
        return self._runner.run(
            self._async.describe_configs(resources, names=names, documentation=documentation, timeout_ms=timeout_ms)
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes settings, and leaves the others as they are.

        A mapping sets what has a value and takes back what has None; `ConfigChange`s can also add to and take from
        settings that are lists.
        """
        self._runner.run(self._async.alter_configs(changes, validate_only=validate_only, timeout_ms=timeout_ms))

    def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """Everything that has settings, or what there is of these types."""
        return self._runner.run(self._async.list_config_resources(types, timeout_ms=timeout_ms))

    # Groups

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """Every group of every coordinator, or those in one of these states or of one of these types."""
        return self._runner.run(self._async.list_groups(states=states, types=types, timeout_ms=timeout_ms))

    def describe_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> dict[str, GroupDescription]:
        """State, members and what each of them reads. GroupIdNotFoundError where there is no such group."""
        return self._runner.run(self._async.describe_groups(groups, timeout_ms=timeout_ms))

    def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes groups that have no members, with their offsets."""
        self._runner.run(self._async.delete_groups(groups, timeout_ms=timeout_ms))

    def remove_members(
        self, group_id: str, group_instance_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Has static members leave a group, so that their partitions are given to others (KIP-345)."""
        self._runner.run(self._async.remove_members(group_id, group_instance_ids, timeout_ms=timeout_ms))

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group committed, for these partitions or for all; partitions without an offset are left out.

        `require_stable` waits for transactions that have offsets of this group.
        """
        return self._runner.run(
            self._async.list_group_offsets(group_id, partitions, require_stable=require_stable, timeout_ms=timeout_ms)
        )

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits offsets for a group that has no members at this moment."""
        self._runner.run(self._async.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forgets what a group committed. GroupSubscribedToTopicError while a member reads the topic."""
        self._runner.run(self._async.delete_group_offsets(group_id, partitions, timeout_ms=timeout_ms))

    # Records

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets of partitions: the latest, the earliest, or the first from a time in milliseconds on.

        The offset is -1 where no record is that late.
        """
        return self._runner.run(
            self._async.list_offsets(partitions, read_committed=read_committed, timeout_ms=timeout_ms)
        )

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each."""
        return self._runner.run(self._async.beginning_offsets(partitions, timeout_ms=timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have, as far as consumers may see."""
        return self._runner.run(self._async.end_offsets(partitions, timeout_ms=timeout_ms))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records below an offset, -1 for all; the first offset that each partition then has."""
        return self._runner.run(self._async.delete_records(before, timeout_ms=timeout_ms))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent and transactional producers that the leader of each partition knows."""
        return self._runner.run(self._async.describe_producers(partitions, timeout_ms=timeout_ms))

    # Transactions

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that the coordinators know: all, or those in a state, of a producer, or that old.

        `pattern` is a regular expression that the ids match (Kafka 4.1 and later).
        """
        return self._runner.run(
            self._async.list_transactions(
                states=states,
                producer_ids=producer_ids,
                longer_than_ms=longer_than_ms,
                pattern=pattern,
                timeout_ms=timeout_ms,
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of each. TransactionalIdNotFoundError where the coordinator knows none."""
        return self._runner.run(self._async.describe_transactions(transactional_ids, timeout_ms=timeout_ms))

    def abort_transaction(self, tp: TopicPartition, start_offset: int, *, timeout_ms: float | None = None) -> None:
        """Ends a transaction that hangs on one partition, whose coordinator has forgotten it (KIP-664).

        It is named by the partition and the offset at which it begins there, as `describe_producers` tells it.
        """
        self._runner.run(self._async.abort_transaction(tp, start_offset, timeout_ms=timeout_ms))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fences whoever uses these transactional ids and aborts what they have open; producer id and new epoch."""
        return self._runner.run(self._async.fence_producers(transactional_ids, timeout_ms=timeout_ms))

    # Cluster

    def describe_cluster(self, *, include_fenced: bool = False, timeout_ms: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers, and the broker to send changes to."""
        return self._runner.run(self._async.describe_cluster(include_fenced=include_fenced, timeout_ms=timeout_ms))

    def describe_quorum(self, *, timeout_ms: float | None = None) -> QuorumDescription:
        """Who leads the metadata quorum, and how far its voters and observers are."""
        return self._runner.run(self._async.describe_quorum(timeout_ms=timeout_ms))

    def describe_features(self, *, timeout_ms: float | None = None) -> dict[str, FeatureRange]:
        """What each feature of the cluster is set to, and what the broker asked could take it to."""
        return self._runner.run(self._async.describe_features(timeout_ms=timeout_ms))

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Sets features of the cluster to these levels; lower ones need `downgrade`."""
        self._runner.run(
            self._async.update_features(levels, downgrade=downgrade, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log directories of these brokers, or of all, with what lies in them."""
        return self._runner.run(self._async.describe_log_dirs(brokers, timeout_ms=timeout_ms))

    def alter_replica_log_dirs(
        self, node_id: int, moves: Mapping[TopicPartition, str], *, timeout_ms: float | None = None
    ) -> None:
        """Moves replicas of a broker to other log directories of it."""
        self._runner.run(self._async.alter_replica_log_dirs(node_id, moves, timeout_ms=timeout_ms))

    def unregister_broker(self, node_id: int, *, timeout_ms: float | None = None) -> None:
        """Has the cluster forget a broker that is gone for good."""
        self._runner.run(self._async.unregister_broker(node_id, timeout_ms=timeout_ms))
