"""What a client knows of a cluster: its brokers, its topics, and who leads which partition.

Pure: responses go in, questions are answered. Two rules keep it from going back in time (KIP-320, KAFKA-7440):
- a partition's leader epoch never goes down; an answer with an older one came from a broker that lags behind;
- a topic that was deleted and made again has another id, and then everything about the old one is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mainstem.client.errors import KafkaError, error_for
from mainstem.client.types import TopicPartition
from mainstem.protocol.messages.k03_metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from mainstem.protocol.schema import ZERO_UUID


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class LeaderAndEpoch(NamedTuple):
    leader: int
    epoch: int


class PartitionInfo(NamedTuple):
    """`leader` is -1 while there is none; `epoch` -1 where the broker does not tell."""

    partition: int
    leader: int
    epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class MetadataCache:
    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.errors: dict[str, KafkaError] = {}
        """Why a topic that was asked for is not in `topics`."""
        self._names: dict[bytes, str] = {}

    # Questions

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        """Who leads a partition; None when that is not known, or nobody does."""
        topic = self.topics.get(tp.topic)
        found = None if topic is None else topic.partitions.get(tp.partition)
        return None if found is None or found.leader < 0 else LeaderAndEpoch(found.leader, found.epoch)

    # What brokers say

    def update(self, response: MetadataResponse, asked: Iterable[str] | None) -> None:
        """Takes in an answer. `asked` are the topics it was about, None when it was about all of them."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack) for each in response.brokers
        }
        seen = set()
        for topic in response.topics:
            name = topic.name if topic.name is not None else self._names.get(topic.topic_id)
            if name is not None:
                seen.add(name)
                self._update_topic(name, topic)
        for name in set(self.topics) | set(self.errors) if asked is None else asked:
            if name not in seen:
                self.forget(name)

    def _update_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        if topic.error_code != 0:
            error = error_for(topic.error_code, topic=name)
            self.errors[name] = error
            # An answer that may change at once (no leader yet) does not make us forget what we knew.
            if not error.retriable or not topic.partitions:
                known = self.topics.pop(name, None)
                if known is not None:
                    self._names.pop(known.topic_id, None)
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        if known is not None and known.topic_id != topic.topic_id:
            self._names.pop(known.topic_id, None)
            known = None
        partitions = {}
        for each in sorted(topic.partitions, key=lambda one: one.partition_index):
            old = None if known is None else known.partitions.get(each.partition_index)
            partitions[each.partition_index] = _newer(old, each)
        self.topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, partitions)
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = name

    def move_leader(self, tp: TopicPartition, leader: int, epoch: int) -> bool:
        """A leader that a broker told about in passing (KIP-951); whether that was news."""
        topic = self.topics.get(tp.topic)
        known = None if topic is None else topic.partitions.get(tp.partition)
        if topic is None or known is None or leader < 0 or epoch <= known.epoch or leader not in self.brokers:
            return False
        topic.partitions[tp.partition] = known._replace(leader=leader, epoch=epoch, error_code=0)
        return True

    def add_broker(self, broker: BrokerAddress) -> None:
        self.brokers[broker.node_id] = broker

    def forget(self, name: str) -> None:
        self.errors.pop(name, None)
        known = self.topics.pop(name, None)
        if known is not None:
            self._names.pop(known.topic_id, None)

    def forget_brokers(self) -> None:
        """Everything known about brokers, for a client that starts anew from its bootstrap servers."""
        self.brokers = {}
        self.controller_id = -1


def _newer(old: PartitionInfo | None, found: MetadataResponsePartition) -> PartitionInfo:
    if old is not None and 0 <= found.leader_epoch < old.epoch:
        return old
    return PartitionInfo(
        found.partition_index,
        found.leader_id if found.error_code == 0 or found.leader_id >= 0 else -1,
        found.leader_epoch,
        tuple(found.replica_nodes),
        tuple(found.isr_nodes),
        tuple(found.offline_replicas),
        found.error_code,
    )
