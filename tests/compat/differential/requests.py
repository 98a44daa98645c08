"""Random requests, each a way to build it for one side: the choices are made once, names become ids per side."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from mainstem.protocol.batch import HEADER_BYTES, BatchView
from mainstem.protocol.builder import BatchBuilder, rewrite_header
from mainstem.protocol.messages import k33_alter_configs as m33
from mainstem.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from mainstem.protocol.messages.k16_list_groups import ListGroupsRequest
from mainstem.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from mainstem.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from mainstem.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from mainstem.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from mainstem.protocol.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from mainstem.protocol.schema import ZERO_UUID, Message
from tests.compat.differential.plays import Play, bad_frame, play_frame, play_session, play_team
from tests.compat.differential.sides import Side

TOPICS = ["a", "b", "c", "d"]
BAD_TOPICS = ["", ".", "..", "with space", "x" * 250, "missing"]
GROUPS = ["g", "h", "other"]
CONFIGS = [
    ("retention.ms", "100000"),
    ("retention.ms", "soon"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "shred"),
    ("max.message.bytes", "2000"),
    ("min.insync.replicas", "0"),
    ("segment.bytes", "2000000"),
    ("no.such.config", "1"),
    ("message.timestamp.type", "LogAppendTime"),
]
BROKER_CONFIGS = [
    ("log.cleaner.threads", "2"),
    ("log.cleaner.threads", "0"),
    ("background.threads", "11"),
    ("log.retention.hours", "7"),
    ("metric.reporters", ""),
    ("metric.reporters", "no.such.Class"),
    ("num.partitions", "9"),
    ("no.such.config", "1"),
    ("log.cleaner.backoff.ms", "14000"),
]
BROKER_KEYS = [
    "log.cleaner.threads",
    "background.threads",
    "num.io.threads",
    "log.cleaner.backoff.ms",
    "metric.reporters",
]
START_MS = 1_700_000_000_000
STRANGER = 1_000_000
"""The id of a producer that nobody has given an id to."""
TOPIC, BROKER = 2, 4

Build = Callable[[Side], Message]


@dataclass(frozen=True)
class Step:
    version: int
    build: Build
    changes_metadata: bool = False
    play: Play | None = None
    """In place of one request, where it takes more than that."""
    name: str = ""


class Requests:
    """Draws one step after another."""

    def __init__(self, rng: random.Random, prefix: str) -> None:
        """`prefix` keeps the topics and groups of one sequence from those of another."""
        self._rng = rng
        self._topics = [prefix + name for name in TOPICS]
        self._groups = [prefix + name for name in GROUPS]
        self._prefix = prefix
        self._teams = 0
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._producers = 0
        self._drawn: list[tuple[int, Callable[[], Step]]] = [
            (6, self._create_topic),
            (2, self._delete_topic),
            (3, self._create_partitions),
            (14, self._produce),
            (3, self._produce_idempotent),
            (10, self._fetch),
            (8, self._list_offsets),
            (6, self._metadata),
            (3, self._offset_for_epoch),
            (2, self._delete_records),
            (2, self._init_producer_id),
            (4, self._describe_configs),
            (4, self._alter_configs),
            (3, self._find_coordinator),
            (4, self._join),
            (3, self._sync),
            (3, self._heartbeat),
            (2, self._leave),
            (5, self._offset_commit),
            (5, self._offset_fetch),
            (3, self._describe_groups),
            (2, self._list_groups),
            (2, self._delete_groups),
            (1, self._offset_delete),
            (3, self._describe_topic_partitions),
            (3, self._replace_configs),
            (3, self._broker_configs),
            (3, self._session),
            (2, self._team),
            (4, self._bad_frame),
        ]

    def draw(self) -> Step:
        weights = [weight for weight, _ in self._drawn]
        return self._rng.choices([make for _, make in self._drawn], weights)[0]()

    def _topic(self) -> str:
        return self._rng.choice(self._topics if self._rng.random() < 0.9 else BAD_TOPICS)

    def _group(self) -> str:
        return self._rng.choice(self._groups)

    def _partition(self) -> int:
        return self._rng.choice([0, 0, 0, 1, 2, 7, -1])

    def _create_topic(self) -> Step:
        rng = self._rng
        configs = rng.sample(CONFIGS, rng.choice([0, 0, 1, 2]))
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=rng.choice([1, 2, 3, 3, -1, 0]),
                replication_factor=rng.choice([1, 1, 1, -1, 2, 0]),
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
            )
            for name in {self._topic() for _ in range(rng.choice([1, 1, 2]))}
        ]
        message = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=rng.random() < 0.1)
        return Step(rng.randint(2, 7), lambda side: message, changes_metadata=True)

    def _delete_topic(self) -> Step:
        name, version, by_id = self._topic(), self._rng.randint(1, 6), self._rng.random() < 0.5

        def build(side: Side) -> Message:
            if version < 6:
                return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
            state = (
                DeleteTopicState(name=None, topic_id=side.topic_id(name))
                if by_id
                else DeleteTopicState(name=name, topic_id=ZERO_UUID)
            )
            return DeleteTopicsRequest(topics=[state], timeout_ms=10_000)

        return Step(version, build, changes_metadata=True)

    def _create_partitions(self) -> Step:
        topic = CreatePartitionsTopic(name=self._topic(), count=self._rng.choice([1, 2, 3, 4, 0]), assignments=None)
        message = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=self._rng.random() < 0.2)
        return Step(self._rng.randint(0, 3), lambda side: message, changes_metadata=True)

    def _produce(self) -> Step:
        rng = self._rng
        builder = BatchBuilder(codec=rng.randrange(5))
        if rng.random() < 0.1:
            builder.producer_id, builder.producer_epoch = STRANGER + rng.randrange(2), rng.choice([-2, -1, -1, 0])
            builder.base_sequence = rng.choice([0, 0, 1, 5, 9])
        is_untimed = rng.random() < 0.05
        for _ in range(rng.randint(1, 5)):
            at_ms = -1 if is_untimed else START_MS + rng.randrange(1000)
            key = rng.choice([None, b"", b"key"])
            builder.append(at_ms, key, rng.choice([None, b"", rng.randbytes(rng.choice([5, 900]))]))
        batch = builder.build()
        if rng.random() < 0.05:
            claimed_ms = rng.choice([-1, -1, START_MS])
            batch = rewrite_header(BatchView(batch, 0), log_append_time=claimed_ms) + batch[HEADER_BYTES:]
        if rng.random() < 0.05:
            batch = batch[:-1] + bytes([batch[-1] ^ 1])
        if rng.random() < 0.1:
            batch += self._behind(batch)
        return self._produced(batch, self._topic(), self._partition())

    def _behind(self, batch: bytes) -> bytes:
        """Bytes behind a batch: a part of another, with a length or of a format that may be none."""
        rng = self._rng
        length = rng.choice([len(batch) - 12, len(batch) - 12, rng.randint(-3, 80), rng.randint(-(1 << 31), 1 << 30)])
        other = batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:16] + bytes([rng.choice([2, 2, 1, 3])])
        return (other + batch[17:])[: rng.choice([rng.randint(1, 70), len(batch)])]

    def _produced(self, batch: bytes, name: str, partition: int, producer: int | None = None) -> Step:
        version, acks = self._rng.randint(3, 13), self._rng.choice([-1, -1, 1, 5])

        def build(side: Side) -> Message:
            records = batch if producer is None else _stamped(batch, side.producer_ids[producer])
            data = [PartitionProduceData(index=partition, records=records)]
            topic = (
                TopicProduceData(topic_id=side.topic_id(name), partition_data=data)
                if version >= 13
                else TopicProduceData(name=name, partition_data=data)
            )
            return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic])

        return Step(version, build)

    def _init_producer_id(self) -> Step:
        self._producers += 1
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        return Step(self._rng.randint(0, 5), lambda side: message)

    def _produce_idempotent(self) -> Step:
        if not self._producers:
            return self._init_producer_id()
        rng = self._rng
        producer, name, partition = rng.randrange(self._producers), rng.choice(self._topics), rng.choice([0, 1])
        key = (producer, name, partition)
        expected = self._sequences.get(key, 0)
        sequence = max(0, expected + rng.choice([0, 0, 0, -1, 2]))
        builder = BatchBuilder(producer_id=0, producer_epoch=0, base_sequence=sequence)
        builder.append(START_MS, b"key", b"value")
        if sequence == expected:
            self._sequences[key] = expected + 1
        return self._produced(builder.build(), name, partition, producer)

    def _fetch(self) -> Step:
        rng = self._rng
        version, name, partition = rng.randint(4, 18), self._topic(), self._partition()
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=rng.choice([0, 0, 1, 3, 10, 1000, -1]),
            partition_max_bytes=rng.choice([1, 500, 1_000_000]),
            current_leader_epoch=rng.choice([-1, -1, 0, 5]),
        )
        isolation = rng.choice([0, 1])

        def build(side: Side) -> Message:
            topic = (
                FetchTopic(topic_id=side.topic_id(name), partitions=[wanted])
                if version >= 13
                else FetchTopic(topic=name, partitions=[wanted])
            )
            return FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, isolation_level=isolation, topics=[topic]
            )

        return Step(version, build)

    def _list_offsets(self) -> Step:
        rng = self._rng
        timestamp = rng.choice([-1, -1, -2, -3, -4, -5, -6, -7, 0, START_MS + 500, START_MS + 5000])
        wanted = ListOffsetsPartition(
            partition_index=self._partition(), timestamp=timestamp, current_leader_epoch=rng.choice([-1, -1, 0, 3])
        )
        version = rng.randint(1, 11)
        message = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=rng.choice([0, 1]) if version >= 2 else 0,
            topics=[ListOffsetsTopic(name=self._topic(), partitions=[wanted])],
            timeout_ms=1000,
        )
        return Step(version, lambda side: message)

    def _metadata(self) -> Step:
        rng = self._rng
        version, names = rng.randint(0, 13), [self._topic() for _ in range(rng.choice([1, 1, 2]))]
        everything, creates = rng.random() < 0.3, version < 4 or rng.random() < 0.2
        by_id, operations = version >= 12 and rng.random() < 0.4, version >= 8 and rng.random() < 0.3

        def build(side: Side) -> Message:
            topics = [
                MetadataRequestTopic(name=None, topic_id=side.topic_id(name))
                if by_id
                else MetadataRequestTopic(name=name)
                for name in dict.fromkeys(names)
            ]
            return MetadataRequest(
                topics=([] if version == 0 else None) if everything else topics,
                allow_auto_topic_creation=creates,
                include_topic_authorized_operations=operations,
                include_cluster_authorized_operations=operations and version <= 10,
            )

        return Step(version, build, changes_metadata=creates)

    def _offset_for_epoch(self) -> Step:
        wanted = OffsetForLeaderPartition(
            partition=self._partition(),
            current_leader_epoch=self._rng.choice([-1, 0, 4]),
            leader_epoch=self._rng.choice([0, 1, -1]),
        )
        message = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=self._topic(), partitions=[wanted])]
        )
        version = self._rng.randint(2, 4)
        return Step(version, lambda side: message)

    def _delete_records(self) -> Step:
        wanted = DeleteRecordsPartition(
            partition_index=self._partition(), offset=self._rng.choice([0, 1, 2, -1, 500, -2])
        )
        topic = DeleteRecordsTopic(name=self._topic(), partitions=[wanted])
        message = DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
        return Step(self._rng.randint(0, 2), lambda side: message)

    def _describe_configs(self) -> Step:
        rng = self._rng
        keys = rng.choice([None, ["retention.ms", "cleanup.policy"], ["no.such.config"], []])
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=self._topic(), configuration_keys=keys)
        message = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        return Step(rng.randint(1, 4), lambda side: message)

    def _alter_configs(self) -> Step:
        rng = self._rng
        key, value = rng.choice(CONFIGS)
        change = AlterableConfig(name=key, config_operation=rng.choice([0, 0, 0, 1, 2, 3]), value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=self._topic(), configs=[change])
        message = IncrementalAlterConfigsRequest(resources=[resource], validate_only=rng.random() < 0.2)
        return Step(rng.randint(0, 1), lambda side: message, changes_metadata=True)

    def _replace_configs(self) -> Step:
        rng = self._rng
        configs = [
            m33.AlterableConfig(name=key, value=value) for key, value in rng.sample(CONFIGS, rng.choice([0, 1, 2]))
        ]
        resource = m33.AlterConfigsResource(
            resource_type=rng.choice([TOPIC, TOPIC, TOPIC, 99]), resource_name=self._topic(), configs=configs
        )
        message = m33.AlterConfigsRequest(resources=[resource], validate_only=rng.random() < 0.2)
        return Step(rng.randint(0, 2), lambda side: message, changes_metadata=True)

    def _broker_configs(self) -> Step:
        """What can be asked and changed about brokers without changing what the rest of the sequence sees."""
        rng = self._rng
        if rng.random() < 0.5:
            resource = DescribeConfigsResource(
                resource_type=BROKER,
                resource_name=rng.choice(["1", "1", "", "7", "x"]),
                configuration_keys=rng.choice([BROKER_KEYS, ["no.such.config"]]),
            )
            asked = DescribeConfigsRequest(resources=[resource], include_synonyms=rng.random() < 0.5)
            return Step(rng.randint(1, 4), lambda side: asked)
        key, value = rng.choice(BROKER_CONFIGS)
        change = AlterableConfig(name=key, config_operation=rng.choice([0, 0, 0, 1, 2, 3]), value=value)
        target = AlterConfigsResource(
            resource_type=BROKER, resource_name=rng.choice(["1", "1", "", "7"]), configs=[change]
        )
        message = IncrementalAlterConfigsRequest(resources=[target], validate_only=rng.random() < 0.5)
        return Step(rng.randint(0, 1), lambda side: message, changes_metadata=True)

    def _played(self, name: str, play: Play, changes_metadata: bool = False) -> Step:
        return Step(0, lambda side: MetadataRequest(topics=[]), changes_metadata, play, name)

    def _session(self) -> Step:
        return self._played("a fetch session", play_session(self._rng.randrange(1 << 30), self._topics))

    def _team(self) -> Step:
        self._teams += 1
        seed, topic = self._rng.randrange(1 << 30), self._rng.choice(self._topics)
        return self._played("a group of two", play_team(seed, f"{self._prefix}team-{self._teams}", topic))

    def _bad_frame(self) -> Step:
        frame = bad_frame(self._rng, self._topics[0], self._groups[0])
        return self._played(f"the frame {frame.hex()}", play_frame(frame))

    def _find_coordinator(self) -> Step:
        version, group = self._rng.randint(0, 6), self._group()
        message = (
            FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            if version >= 4
            else FindCoordinatorRequest(key=group)
        )
        return Step(version, lambda side: message)

    def _join(self) -> Step:
        version, group = self._rng.randint(0, 9), self._group()
        kind = self._rng.choice(["consumer", "consumer", "consumer", "", "connect"])

        def build(side: Side) -> Message:
            return JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=2_000,
                member_id=side.member_ids.get(group, ""),
                protocol_type=kind,
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
            )

        return Step(version, build)

    def _generation(self, side: Side, group: str, shift: int) -> int:
        return side.generations.get(group, -1) + shift

    def _sync(self) -> Step:
        version, group, shift = self._rng.randint(0, 5), self._group(), self._rng.choice([0, 0, 0, 1])

        def build(side: Side) -> Message:
            member = side.member_ids.get(group, "nobody")
            return SyncGroupRequest(
                group_id=group,
                generation_id=self._generation(side, group, shift),
                member_id=member,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"mine")],
            )

        return Step(version, build)

    def _heartbeat(self) -> Step:
        version, group, shift = self._rng.randint(0, 4), self._group(), self._rng.choice([0, 0, 0, 1])
        return Step(
            version,
            lambda side: HeartbeatRequest(
                group_id=group,
                generation_id=self._generation(side, group, shift),
                member_id=side.member_ids.get(group, "nobody"),
            ),
        )

    def _leave(self) -> Step:
        version, group = self._rng.randint(0, 5), self._group()

        def build(side: Side) -> Message:
            member = side.member_ids.get(group, "nobody")
            if version < 3:
                return LeaveGroupRequest(group_id=group, member_id=member)
            return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])

        return Step(version, build)

    def _offset_commit(self) -> Step:
        rng = self._rng
        version, group, name, alone = rng.randint(2, 10), self._group(), self._topic(), rng.random() < 0.5
        wanted = OffsetCommitRequestPartition(
            partition_index=self._partition(),
            committed_offset=rng.choice([0, 5, 17]),
            # Kafka keeps the group of a lone commit that it refused, in memory, until it forgets it.
            committed_metadata=rng.choice([None, "", "meta", "meta" if alone else "x" * 5000]),
        )

        def build(side: Side) -> Message:
            topic = (
                OffsetCommitRequestTopic(topic_id=side.topic_id(name), partitions=[wanted])
                if version >= 10
                else OffsetCommitRequestTopic(name=name, partitions=[wanted])
            )
            return OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1 if alone else self._generation(side, group, 0),
                member_id="" if alone else side.member_ids.get(group, ""),
                topics=[topic],
            )

        return Step(version, build)

    def _offset_fetch(self) -> Step:
        rng = self._rng
        version, group, name, everything = rng.randint(1, 10), self._group(), self._topic(), rng.random() < 0.4
        indexes = [self._partition()]

        def build(side: Side) -> Message:
            if version < 8:
                topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes)]
                return OffsetFetchRequest(group_id=group, topics=None if everything and version >= 2 else topics)
            topic = (
                OffsetFetchRequestTopics(topic_id=side.topic_id(name), partition_indexes=indexes)
                if version >= 10
                else OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            )
            asked = OffsetFetchRequestGroup(group_id=group, topics=None if everything else [topic])
            return OffsetFetchRequest(groups=[asked])

        return Step(version, build)

    def _describe_groups(self) -> Step:
        message = DescribeGroupsRequest(groups=[self._group()])
        return Step(self._rng.randint(0, 6), lambda side: message)

    def _list_groups(self) -> Step:
        version = self._rng.randint(0, 5)
        states = self._rng.choice([[], ["Stable"], ["empty"], ["Unheard"]]) if version >= 4 else []
        types = self._rng.choice([[], ["classic"], ["Consumer"]]) if version >= 5 else []
        message = ListGroupsRequest(states_filter=states, types_filter=types)
        return Step(version, lambda side: message)

    def _delete_groups(self) -> Step:
        message = DeleteGroupsRequest(groups_names=[self._group()])
        return Step(self._rng.randint(0, 2), lambda side: message)

    def _offset_delete(self) -> Step:
        wanted = OffsetDeleteRequestPartition(partition_index=self._partition())
        topic = OffsetDeleteRequestTopic(name=self._topic(), partitions=[wanted])
        message = OffsetDeleteRequest(group_id=self._group(), topics=[topic])
        return Step(0, lambda side: message)

    def _describe_topic_partitions(self) -> Step:
        names = sorted({self._topic() for _ in range(2)})
        message = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=self._rng.choice([1, 2000])
        )
        return Step(0, lambda side: message)


def _stamped(batch: bytes, producer_id: int) -> bytes:
    """The same batch of another producer: built again, for its checksum."""
    view = BatchView(batch, 0)
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=view.base_sequence)
    builder.append(START_MS, b"key", b"value")
    return builder.build()
