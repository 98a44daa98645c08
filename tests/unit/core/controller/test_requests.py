"""Every request of the list gets the code that Kafka 4.3.1 gave it; what is not named here was accepted."""

import re

from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersResponse
from mainstem.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from mainstem.protocol.messages.metadata_records import RegisterControllerRecord
from mainstem.protocol.schema import ZERO_UUID
from tests.compat.controller_requests import APPEND, BROKER, SET, SUBTRACT, all_cases, change, elect_twice
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
        "append nothing",
        "append nothing and something",
        "client metrics append",
        "unknown config",
        "bad config value",
        "config out of range",
        "null config",
        "bad cleanup policy",
        "lags that contradict",
        "append to a number",
        "set invalid",
        "set unknown key",
        "broker append to a number",
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
        "elect a topic twice",
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


def test_a_topic_named_and_given_by_its_id_in_one_request_stays() -> None:
    cluster = Cluster(1)
    for name in ("orders", "bills"):
        cluster.create(name)
    orders, bills = (cluster.image.topics[name].topic_id for name in ("orders", "bills"))

    def delete(*asked: tuple[str | None, bytes]) -> list[tuple[str | None, bytes, int]]:
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
        answer = cluster.decide(DeleteTopicsRequest(topics=topics, timeout_ms=1000)).response
        assert isinstance(answer, DeleteTopicsResponse)
        return [(one.name, one.topic_id, one.error_code) for one in answer.responses]

    refused = ErrorCode.INVALID_REQUEST
    assert delete(("orders", ZERO_UUID), (None, orders)) == [("orders", orders, refused)]
    assert delete((None, orders), ("orders", ZERO_UUID)) == [("orders", orders, refused)]
    assert sorted(delete((None, orders), (None, orders), ("orders", ZERO_UUID)), key=str) == [
        ("orders", orders, refused),
        (None, orders, refused),
    ]
    assert "orders" in cluster.image.topics
    # A name that is there twice is no name, so the id stands alone; and others of the request are not touched.
    assert delete(("orders", ZERO_UUID), ("orders", ZERO_UUID), (None, orders), ("bills", ZERO_UUID)) == [
        ("orders", ZERO_UUID, refused),
        ("orders", orders, 0),
        ("bills", bills, 0),
    ]
    assert not cluster.image.topics


def test_each_entry_of_an_election_is_answered() -> None:
    cluster = Cluster(1)
    cluster.create("orders", {0: [1], 1: [1]})
    answer = cluster.decide(elect_twice("orders", 0, 1)).response
    assert isinstance(answer, ElectLeadersResponse)
    found = [
        (one.topic, [each.partition_id for each in one.partition_result]) for one in answer.replica_election_results
    ]
    assert found == [("orders", [0]), ("orders", [1])]


def test_lists_of_brokers_are_added_to_and_taken_from() -> None:
    cluster = Cluster(1)
    policy = "log.cleanup.policy"
    for name in ("1", ""):
        cluster.decide(change(BROKER, name, (policy, APPEND, "compact")))
        assert cluster.image.config(BROKER, name)[policy] == "delete,compact"
        cluster.decide(change(BROKER, name, (policy, SUBTRACT, "delete")))
        assert cluster.image.config(BROKER, name)[policy] == "compact"


def test_a_broker_is_told_of_a_setting_that_stays_as_it_is() -> None:
    cluster = Cluster(1)
    for _ in range(2):
        assert len(cluster.decide(change(BROKER, "1", ("ssl.keystore.location", SET, "/a"))).records) == 1


def test_reassigning_nothing_is_answered_with_an_empty_message() -> None:
    answer = Cluster(1).decide(AlterPartitionReassignmentsRequest(topics=[])).response
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    assert (answer.error_code, answer.error_message) == (0, "")
