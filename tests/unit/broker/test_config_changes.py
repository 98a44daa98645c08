"""Which changes of a broker's dynamic settings are refused, as Kafka 4.3.1 refuses them."""

import pytest

from mainstem.broker.config_changes import APPEND, DELETE, SET, SUBTRACT, apply_operations, check_broker_change
from mainstem.broker.config_view import ConfigView
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode, RemoteError

GIVEN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/d1,/data/d2",
}


# Setting, value, and whether it may be set for one broker and for all.
@pytest.mark.parametrize(
    ("name", "value", "for_one", "for_all"),
    [
        ("node.id", "2", False, False),
        ("log.roll.hours", "5", False, False),
        ("advertised.listeners", "PLAINTEXT://a:1", False, False),
        ("no.such.setting", "x", True, True),
        ("log.retention.ms", "  5000 ", True, True),
        ("log.retention.ms", "-1", True, True),
        ("log.retention.ms", "0", False, False),
        ("log.retention.ms", "x", False, False),
        ("log.retention.bytes", "", False, False),
        ("log.retention.bytes", "99999999999999999999", False, False),
        ("log.cleanup.policy", "foo", False, False),
        ("log.cleanup.policy", "compact", True, True),
        ("log.segment.bytes", "1", False, False),
        ("log.roll.ms", "0", False, False),
        ("log.roll.jitter.ms", "-1", False, False),
        ("log.cleaner.min.cleanable.ratio", "2", False, False),
        ("log.cleaner.io.buffer.load.factor", "x", False, False),
        ("log.cleaner.dedupe.buffer.size", "5", False, False),
        ("log.local.retention.ms", "-1", False, False),
        ("log.local.retention.ms", "1000", True, True),
        ("log.preallocate", "", False, False),
        ("message.max.bytes", "-1", False, False),
        ("min.insync.replicas", "0", False, False),
        ("unclean.leader.election.enable", "maybe", False, False),
        ("compression.type", "x", False, False),
        ("compression.zstd.level", "23", False, False),
        ("max.connections", "-3", False, False),
        ("max.connections", "+7", True, True),
        ("max.connections", "1_0", False, False),
        ("max.connections", "99999999999", False, False),
        ("listener.name.plaintext.max.connections", "5", True, True),
        ("listener.name.plaintext.max.connections", "-5", False, False),
        ("num.io.threads", "16", True, True),
        ("num.io.threads", "17", False, False),
        ("num.io.threads", "4", True, True),
        ("num.io.threads", "3", False, False),
        ("log.cleaner.threads", "0", False, False),
        ("log.cleaner.threads", "2", True, True),
        ("group.consumer.assignment.interval.ms", "99999", False, False),
        ("leader.replication.throttled.rate", "100", True, True),
        ("follower.replication.throttled.rate", "-1", False, False),
        ("ssl.keystore.location", "x", False, False),
        ("listener.name.plaintext.ssl.keystore.location", "/nope", False, False),
        ("cordoned.log.dirs", "/data/d2", True, False),
        ("cordoned.log.dirs", "*", True, False),
        ("cordoned.log.dirs", "/x", False, False),
        ("listeners", "PLAINTEXT://127.0.0.1:19092", False, False),
        ("listeners", "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:19093", False, False),
        ("listeners", GIVEN["listeners"], True, False),
        ("metric.reporters", "", True, True),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter,", False, False),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", True, True),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter,no.such.Class", False, False),
    ],
)
def test_a_setting_is_taken_where_kafka_takes_it(name: str, value: str, for_one: bool, for_all: bool) -> None:
    view = ConfigView(GIVEN, ClusterImage(), 1)
    for all_brokers, allowed in ((False, for_one), (True, for_all)):
        if allowed:
            check_broker_change(view, all_brokers, {name: value})
        else:
            with pytest.raises(RemoteError) as refused:
                check_broker_change(view, all_brokers, {name: value})
            assert refused.value.code is ErrorCode.INVALID_REQUEST
            assert refused.value.message


def test_operations_change_lists_and_nothing_else_by_parts() -> None:
    current = {"log.cleanup.policy": "delete"}
    assert apply_operations(current, [("log.cleanup.policy", APPEND, "compact,delete")]) == {
        "log.cleanup.policy": "delete,compact"
    }
    assert apply_operations(current, [("log.cleanup.policy", SUBTRACT, "delete")]) == {"log.cleanup.policy": ""}
    assert apply_operations({}, [("log.cleanup.policy", APPEND, "compact")]) == {"log.cleanup.policy": "delete,compact"}
    assert apply_operations(current, [("log.cleanup.policy", DELETE, None), ("a", SET, "b")]) == {"a": "b"}
    assert apply_operations(current, [("log.cleanup.policy", APPEND, "compact,")]) == {
        "log.cleanup.policy": "delete,compact"
    }
    assert current == {"log.cleanup.policy": "delete"}
    for name in ("log.retention.ms", "no.such.setting"):
        with pytest.raises(RemoteError) as refused:
            apply_operations({}, [(name, APPEND, "1")])
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(RemoteError) as unknown:
        apply_operations({}, [("log.retention.ms", 9, "1")])
    assert unknown.value.code is ErrorCode.INVALID_REQUEST
