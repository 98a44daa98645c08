"""Every request of the list gets the code that Kafka 4.3.1 gave it; what is not named here was accepted."""

import re

from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.metadata_records import RegisterControllerRecord
from tests.compat.controller_requests import all_cases
from tests.unit.core.controller.harness import Cluster

REFUSED: dict[ErrorCode, list[str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: [
        "create again",
    ],
    ErrorCode.INVALID_REQUEST: [
        "twice in one request",
        "name metadata topic",
        "placed and counted",
        "placed with factor",
        "grow twice",
        "set on empty topic name",
        "broker no number",
        "broker negative",
        "client metrics invalid",
        "client metrics unknown key",
        "client metrics nameless",
        "group nameless",
        "one resource twice",
        "elect bad type",
        "delete twice",
        "delete zero id",
        "delete by both",
    ],
    ErrorCode.INVALID_TOPIC_EXCEPTION: [
        "dots collide 2",
        "name empty",
        "name one dot",
        "name two dots",
        "name too long",
        "name bad letter",
        "name space",
        "set on bad topic name",
    ],
    ErrorCode.INVALID_PARTITIONS: [
        "no partitions",
        "negative partitions",
        "one good one bad",
        "grow to the same",
        "shrink",
        "grow negative",
    ],
    ErrorCode.POLICY_VIOLATION: [
        "too many partitions",
    ],
    ErrorCode.INVALID_REPLICATION_FACTOR: [
        "factor 0",
        "factor 2",
        "factor -2",
    ],
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: [
        "placed on nobody",
        "placed on unknown",
        "placed twice on one",
        "placed unevenly",
        "placed with a gap",
        "placed negative",
        "grow placed too few",
        "grow placed on unknown",
        "grow placed unevenly",
        "grow placed on nobody",
        "reassign to unknown",
        "reassign to two",
        "reassign to nobody",
        "reassign twice on one",
        "reassign negative",
        "reassign factor kept",
    ],
    ErrorCode.INVALID_CONFIG: [
        "unknown config",
        "bad config value",
        "config out of range",
        "null config",
        "bad cleanup policy",
        "lags that contradict",
        "append to a number",
        "set invalid",
        "set unknown key",
        "broker min isr",
        "default min isr delete",
        "client metrics bad match",
        "group unknown key",
        "group invalid",
        "group out of range",
        "replace invalid",
        "replace default broker",
    ],
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: [
        "grow unknown",
        "set on unknown topic",
        "replace unknown topic",
        "one good one bad resource",
        "elect unknown topic",
        "elect unknown partition",
        "reassign unknown topic",
        "reassign unknown partition",
        "delete again",
        "delete old version",
        "delete empty name",
        "delete metadata",
    ],
    ErrorCode.UNSUPPORTED_VERSION: [
        "unknown type",
        "type unknown 0",
    ],
    ErrorCode.BROKER_ID_NOT_REGISTERED: [
        "broker other",
        "unregister unknown",
    ],
    ErrorCode.ELECTION_NOT_NEEDED: [
        "elect preferred",
        "elect unclean",
        "elect v0",
    ],
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: [
        "cancel nothing",
    ],
    ErrorCode.STALE_BROKER_EPOCH: [
        "ids of an unknown broker",
        "ids of an old epoch",
    ],
    ErrorCode.UNKNOWN_TOPIC_ID: [
        "delete unknown id",
    ],
    ErrorCode.INVALID_UPDATE_VERSION: [
        "feature unknown",
        "feature too high",
        "feature down unsafe flag missing",
        "feature negative",
        "feature bad type",
        "feature v2 error",
        "metadata too high",
        "metadata too low",
        "metadata down",
        "metadata down wrong type",
        "metadata unsafe down",
        "kraft down",
        "feature one good one bad",
        "feature one good one bad v2",
        "feature v0 down",
    ],
}
"""By the only code other than NONE in the answer."""


def test_every_request_is_answered_with_kafkas_code() -> None:
    cluster = Cluster(1)
    cluster.write(
        [
            RegisterControllerRecord(
                controller_id=1, incarnation_id=bytes(16), zk_migration_ready=False, end_points=[], features=[]
            )
        ]
    )
    expected = {label: code for code, labels in REFUSED.items() for label in labels}
    for label, request, version in all_cases():
        if label == "logger":
            continue  # the broker's to answer
        decision = cluster.decide(request, version)
        codes = {int(code) for code in re.findall(r"error_code=<ErrorCode\.\w+: (-?\d+)>", repr(decision.response))}
        assert codes - {0} == ({int(expected[label])} if label in expected else set()), label
    assert len(expected) > 80


def test_a_log_of_every_request_replays_to_the_same_image() -> None:
    cluster = Cluster(1)
    for _, request, version in all_cases():
        cluster.decide(request, version)
    replayed = ClusterImage()
    replayed.replay_all(cluster.log)
    assert list(replayed.encoded_records()) == list(cluster.image.encoded_records())


def test_validate_only_writes_nothing() -> None:
    cluster = Cluster(1)
    for label, request, version in all_cases():
        before = len(cluster.log)
        cluster.decide(request, version)
        if "validate" in label:
            assert len(cluster.log) == before, label
