"""Kafka and our broker, given the same random stories over the wire, write the same files byte for byte.

Each topic has log settings of its own: small segments, indexes that are soon full, sparse or dense ones, limits of age
and size. Batches come with and without producers, whose sequences run on, jump, come again and wrap, and with odd
timestamps; settings change on the way. The nodes are stopped and started in the middle. After that records are deleted
and retention has its turn, not before: a Kafka that is started after all records went forgets producers that we keep.

Left out is what differs on purpose (`docs/differences.md`), and what no two runs have in common: the time of an append.
"""

import os
import random
import time
from pathlib import Path

import pytest

from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from mainstem.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from mainstem.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from mainstem.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from mainstem.protocol.schema import Message
from mainstem.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, parse_offsets
from tests.compat.differential.sides import Side
from tests.compat.differential.test_same_answers import changes
from tests.support.kafka import Kafka, KafkaNode
from tests.support.node import Node

pytestmark = [pytest.mark.campaign, pytest.mark.kafka, pytest.mark.timeout(600)]

SEEDS = range(1, 1 + (int(os.environ.get("MAINSTEM_SEEDS", "8")) + 3) // 4)
STEPS = int(os.environ.get("MAINSTEM_STEPS", "400"))
TOPICS = [f"story-{number}" for number in range(8)]
SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
}
KAFKAS = SETTINGS | {"log.initial.task.delay.ms": "200"}  # or nothing is deleted for half a minute
TOPIC = 2
SETTLED_S = 1.5
"""What retention has to look at all topics, and Kafka to follow a change of settings, where nothing tells."""
TURN_S = 60.0
LAST_TOPIC = "last"
"""One old record: when it goes, retention has followed all changes of settings before."""

# Each with values to draw from. Kafka does not start with a smaller `segment.index.bytes` than a topic had before.
AT_FIRST: dict[str, list[int]] = {"segment.index.bytes": [24, 25, 36, 100, 1000]}
AT_ANY_TIME: dict[str, list[int]] = {
    "internal.segment.bytes": [200, 500, 1500, 5000, 20_000],
    "index.interval.bytes": [0, 1, 60, 500, 4096],
    "segment.ms": [1, 1000, 60_000, 3_600_000],
    "max.message.bytes": [0, 400, 3000, 1_048_588],
    "message.timestamp.before.max.ms": [7_100_000, 10_000_000, (1 << 63) - 1],
    "message.timestamp.after.max.ms": [0, 1000, (1 << 63) - 1],
    "file.delete.delay.ms": [0, 100, (1 << 63) - 1],
    "flush.messages": [1, 5, 1000],
}


class Story:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._began_ms = int(time.time() * 1000)
        self._now_ms = dict.fromkeys(TOPICS, self._began_ms - 7_200_000)
        self._producers: dict[tuple[str, int], tuple[int, int]] = {}
        self.ends = dict.fromkeys(TOPICS, 0)
        self._untimed: set[str] = set()
        self.is_restarted = False

    def topic(self) -> str:
        return self._rng.choice(TOPICS)

    def first_settings(self) -> dict[str, str]:
        drawn = {key: str(self._rng.choice(values)) for key, values in (AT_FIRST | AT_ANY_TIME).items()}
        kept = self._rng.sample(sorted(drawn), 4)
        return {key: drawn[key] for key in [*kept, "internal.segment.bytes"]} | {"retention.ms": "-1"}

    def _drawn(self, weights: dict[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]

    def draw(self, topic: str) -> tuple[Message, int]:
        weights = {"produce": 80, "list": 8, "producers": 4, "alter": 5, "delete": 5 if self.is_restarted else 0}
        match self._drawn(weights):
            case "produce":
                return produce_request(topic, self._batch(topic)), 9
            case "list":
                # Kafka finds no record by its time where the segment that it looks into has one before the log start.
                # Nor behind a segment whose records have none: it goes by when that file was written, and looks there.
                by_time = [] if self.is_restarted or topic in self._untimed else [0, self._now_ms[topic] - 1000]
                timestamps = [-1, -2, -3, *by_time]
                return list_request(topic, self._rng.choice(timestamps)), 7
            case "producers":
                return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])]), 0
            case "alter":
                key = self._rng.choice(sorted(AT_ANY_TIME))
                return alter_request(topic, {key: str(self._rng.choice(AT_ANY_TIME[key]))}), 1
        end = self.ends[topic]
        offset = self._rng.choice([-1, 0, end, end + 1, self._rng.randrange(end + 1)])
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
        return DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2

    def retention(self) -> dict[str, str]:
        key, values = self._rng.choice([("retention.ms", [1, 7_000_000, -1]), ("retention.bytes", [0, 1, 500, 10_000])])
        return {key: str(self._rng.choice(values))}

    def _batch(self, topic: str) -> bytes:
        rng = self._rng
        count = rng.choice([1, 1, 2, 3, 10])
        if rng.random() < 0.5:
            builder = self._of_producer(topic, rng.randrange(4), count)
            is_odd = False  # Kafka forgets who sends old records.
        else:
            builder = BatchBuilder(codec=rng.randrange(5))
            is_odd = rng.random() < 0.1
        self._now_ms[topic] += rng.choice([0, 0, 1, 5, 100, 1000, 30_000, -20_000, 61_000])
        for _ in range(count):
            at_ms = self._now_ms[topic] + rng.choice([0, 0, -7, 3])
            if is_odd:
                at_ms = rng.choice([-1, 0, 1, at_ms - 10**9, at_ms + 10**7, 1 << 62])
                if at_ms == -1:
                    self._untimed.add(topic)
            key = rng.choice([None, b"", b"key", rng.randbytes(6)])
            value = rng.choice([None, b"", rng.randbytes(20), rng.randbytes(300), b"a" * 2000])
            builder.append(at_ms, key, value, [("h", b"1"), ("e", None)] if rng.random() < 0.2 else [])
        return builder.build()

    def _of_producer(self, topic: str, number: int, count: int) -> BatchBuilder:
        rng = self._rng
        epoch, sequence = self._producers.get((topic, number), (0, 0))
        # After a restart Kafka knows the last batch of a producer, and we find four more.
        weights = {"on": 80, "again": 0 if self.is_restarted else 8, "jump": 4, "epoch": 6, "wrap": 2}
        match self._drawn(weights):
            case "again":
                sequence = max(0, sequence - rng.randint(1, 10))
            case "jump":
                sequence = min(sequence + rng.randint(1, 5), (1 << 31) - 1)
            case "epoch":
                epoch, sequence = epoch + 1, 0
            case "wrap":
                sequence = (1 << 31) - rng.randint(1, 3)
        self._producers[topic, number] = epoch, (sequence + count) % (1 << 31)
        return BatchBuilder(
            codec=rng.randrange(5), producer_id=1000 + number, producer_epoch=epoch, base_sequence=sequence
        )


def produce_request(topic: str, batch: bytes) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])


def list_request(topic: str, timestamp: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])


def alter_request(topic: str, settings: dict[str, str]) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def ask_both(sides: list[Side], message: Message, version: int) -> Message:
    """The answer; AssertionError where the two differ in it."""
    answers = [side.send(message, version) for side in sides]
    expected, found = (side.plain(answer) for side, answer in zip(sides, answers, strict=True))
    assert expected == found, f"{message!r}\n" + "\n".join(changes(expected, found))
    return answers[0]


def create_topics(sides: list[Side], story: Story) -> None:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in story.first_settings().items()],
        )
        for name in TOPICS
    ]
    kept = [CreatableTopicConfig(name="retention.ms", value="-1")]
    topics.append(CreatableTopic(name=LAST_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=kept))
    for side in sides:
        answer = side.plain(side.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5))
        assert not any(topic["error_code"] for topic in answer["topics"]), answer


def wait_for_topics(sides: list[Side]) -> None:
    deadline = time.monotonic() + 30
    while not all(side.look_up_topics().keys() >= {*TOPICS, LAST_TOPIC} for side in sides):
        assert time.monotonic() < deadline, "the topics never had leaders"
        time.sleep(0.1)
    time.sleep(SETTLED_S)


def tell(sides: list[Side], story: Story) -> None:
    for _ in range(STEPS):
        topic = story.topic()
        message, version = story.draw(topic)
        answer = ask_both(sides, message, version)
        if isinstance(answer, ProduceResponse):
            story.ends[topic] = max(story.ends[topic], answer.responses[0].partition_responses[0].base_offset + 1)
        elif isinstance(message, IncrementalAlterConfigsRequest):
            time.sleep(0.1)


def starts(side: Side) -> dict[str, int]:
    return {
        topic: side.plain(side.send(list_request(topic, -2), 7))["topics"][0]["partitions"][0]["offset"]
        for topic in (*TOPICS, LAST_TOPIC)
    }


def have_settled(sides: list[Side]) -> bool:
    """Whether both have deleted the last topic's record, and the same of the others, and nothing more for a while."""
    before = [starts(side) for side in sides]
    time.sleep(SETTLED_S)
    after = [starts(side) for side in sides]
    return before == after and after[0] == after[1] and after[0][LAST_TOPIC] == 1


def let_retention_have_its_turn(sides: list[Side], story: Story) -> None:
    time.sleep(SETTLED_S)
    old = BatchBuilder()
    old.append(int(time.time() * 1000) - 3_600_000, None, b"old")
    ask_both(sides, produce_request(LAST_TOPIC, old.build()), 9)
    for topic in TOPICS:
        ask_both(sides, alter_request(topic, story.retention()), 1)
    ask_both(sides, alter_request(LAST_TOPIC, {"retention.ms": "1"}), 1)
    deadline = time.monotonic() + TURN_S
    while not have_settled(sides):
        found = "\n".join(changes(starts(sides[0]), starts(sides[1])))
        assert time.monotonic() < deadline, f"the logs do not begin where Kafka's do:\n{found}"
    for topic in TOPICS:
        # A restart must find nothing more to do.
        ask_both(sides, alter_request(topic, {"retention.ms": "-1", "retention.bytes": "-1"}), 1)
        for timestamp in (-1, -2, -3):
            ask_both(sides, list_request(topic, timestamp), 7)


def check_files(theirs: Path, ours: Path) -> None:
    for topic in TOPICS:
        expected, found = (
            {file.name: file.read_bytes() for file in (data / f"{topic}-0").iterdir() if file.suffix != ".deleted"}
            for data in (theirs, ours)
        )
        assert sorted(found) == sorted(expected), topic
        differing = [name for name in expected if name != "partition.metadata" and found[name] != expected[name]]
        assert not differing, f"{topic}: {differing}"
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        expected_offsets, found_offsets = (
            {key: offset for key, offset in parse_offsets(name, (data / name).read_bytes()).items() if key[0] in TOPICS}
            for data in (theirs, ours)
        )
        assert found_offsets == expected_offsets, name


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_story_leaves_the_same_files(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    story = Story(seed)
    theirs, ours = KafkaNode(kafka, tmp_path / "kafka", KAFKAS), Node(tmp_path / "mainstem", SETTINGS)
    try:
        for story.is_restarted in (False, True):
            theirs.start()
            ours.start()
            sides = [Side("kafka", theirs.port), Side("mainstem", ours.port)]
            if not story.is_restarted:
                create_topics(sides, story)
            wait_for_topics(sides)
            tell(sides, story)
            if story.is_restarted:
                let_retention_have_its_turn(sides, story)
            for side in sides:
                side.close()
            theirs.stop()
            ours.stop()
            check_files(theirs.data, ours.data)
    finally:
        theirs.kill()
        ours.kill()
