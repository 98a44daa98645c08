"""Kafka and our broker give the same answers to the same requests, field by field, but for what `sides` lists."""

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k03_metadata import MetadataRequest
from mainstem.protocol.messages.k09_offset_fetch import OffsetFetchRequest
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from mainstem.protocol.messages.k11_join_group import JoinGroupResponse
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mainstem.protocol.schema import Message
from tests.compat.differential.requests import Requests, Step
from tests.compat.differential.sides import Disconnected, Side
from tests.support.kafka import Kafka, KafkaNode
from tests.support.node import Node

pytestmark = [pytest.mark.campaign, pytest.mark.kafka, pytest.mark.timeout(1500)]

SEEDS = range(1, 1 + int(os.environ.get("MAINSTEM_SEEDS", "8")))
STEPS = int(os.environ.get("MAINSTEM_STEPS", "400"))
PROPAGATION_S_MAX = 5.0

NEW_PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "num.partitions": str(NEW_PARTITIONS),
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    # Both forget empty groups without offsets at these intervals: at moments of their own, so not during a run.
    "offsets.retention.check.interval.ms": "86400000",
    # So it is with what is older than the `retention.ms` that a topic is given.
    "log.retention.check.interval.ms": "86400000",
}
KAFKAS = SETTINGS | {"log.initial.task.delay.ms": "86400000"}  # or it looks for the first time after half a minute


@pytest.fixture(scope="module")
def theirs(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with KafkaNode(kafka, tmp_path_factory.mktemp("kafka"), KAFKAS) as started:
        yield started


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("mainstem"), SETTINGS) as started:
        yield started


def answer(side: Side, step: Step) -> tuple[Message, Any]:
    """What was asked, and the answer in plain values."""
    message = step.build(side)
    if step.play is not None:
        return message, step.play(side)
    try:
        response = side.send(message, step.version)
    except Disconnected:
        return message, "disconnected"
    if isinstance(response, JoinGroupResponse):
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            side.remember_member(message.group_id, response.member_id, response.generation_id)  # type: ignore[attr-defined]
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            side.member_ids.pop(message.group_id, None)  # type: ignore[attr-defined]
    if isinstance(response, InitProducerIdResponse):
        side.producer_ids.append(response.producer_id)
    return message, side.plain(response)


def warm_up(side: Side) -> None:
    """Kafka makes its offsets topic and gets producer ids when first asked, and says so; we answer when it is done."""
    deadline = time.monotonic() + 30
    while True:
        found = side.plain(side.send(FindCoordinatorRequest(key="warm-up"), 1))
        listed = side.plain(side.send(OffsetFetchRequest(group_id="warm-up", topics=None), 5))
        given = side.plain(side.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1))
        if (found["error_code"], listed["error_code"], given["error_code"]) == (0, 0, 0):
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_listed_difference(message: Message, expected: Any, found: Any) -> bool:
    """A topic that Metadata creates: Kafka says it is unknown and creates it; we answer with the new topic."""
    if not isinstance(message, MetadataRequest) or not isinstance(found, dict) or not isinstance(expected, dict):
        return False
    if not message.allow_auto_topic_creation or message.topics is None:
        return False
    theirs = {topic["name"]: topic for topic in expected["topics"]}
    ours = {topic["name"]: topic for topic in found["topics"]}
    created = {
        name
        for name, topic in theirs.items()
        if topic["error_code"] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
        and name in {topic.name for topic in message.topics}
        and ours.get(name, topic)["error_code"] == ErrorCode.NONE
        and len(ours[name]["partitions"]) == NEW_PARTITIONS
    }
    return bool(created) and without(expected, created) == without(found, created)


def without(answer: Any, names: set[str]) -> Any:
    return answer | {"topics": [topic for topic in answer["topics"] if topic["name"] not in names]}


def settle(sides: list[Side]) -> None:
    """Waits until both tell the same topics: what the controller has decided reaches brokers a moment later."""
    deadline = time.monotonic() + PROPAGATION_S_MAX
    time.sleep(0.05)
    while True:
        first, second = (side.look_up_topics() for side in sides)
        if first == second or time.monotonic() > deadline:
            assert first == second, "the topics differ"
            time.sleep(0.05)
            return
        time.sleep(0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_get_the_same_answers(seed: int, theirs: KafkaNode, ours: Node) -> None:
    sides = [Side("kafka", theirs.port), Side("mainstem", ours.port)]
    requests = Requests(random.Random(seed), f"s{seed}-")
    for side in sides:
        warm_up(side)
    settle(sides)
    differences = []
    try:
        for number in range(STEPS):
            step = requests.draw()
            (message, expected), (_, found) = (answer(side, step) for side in sides)
            if expected != found and not is_listed_difference(message, expected, found):
                differences.append(f"seed {seed}, step {number}: {describe(step, message, expected, found)}")
            if step.changes_metadata:
                settle(sides)
    finally:
        for side in sides:
            side.close()
    assert not differences, f"{len(differences)} of {STEPS}:\n" + "\n".join(differences[:20])


def describe(step: Step, message: Any, expected: Any, found: Any) -> str:
    lines = "\n".join(f"    {line}" for line in changes(expected, found))
    if step.play is not None:
        return f"{step.name}\n{lines}"
    return f"{type(message).__name__} v{step.version} {message!r}\n{lines}"


def changes(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where two answers part, one line each."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [line for key in expected for line in changes(expected[key], found[key], f"{path}.{key}")]
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for at, (one, other) in pairs for line in changes(one, other, f"{path}[{at}]")]
    return [] if expected == found else [f"{path}: kafka {expected!r}, mainstem {found!r}"]
