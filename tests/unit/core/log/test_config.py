"""Topic configs: Kafka's names, defaults and limits."""

from dataclasses import fields

import pytest

from mainstem.core.log.config import TOPIC_CONFIGS, LogConfig, parse_log_config, server_defaults


def test_every_key_of_the_table_is_a_field_with_the_same_default() -> None:
    assert {key.replace(".", "_") for key in TOPIC_CONFIGS} == {field.name for field in fields(LogConfig)}
    for name, key in TOPIC_CONFIGS.items():
        assert LogConfig().value(name) == key.default, name
        assert key.default is None or key.is_valid(key.default), name
        assert key.doc.endswith("."), name


def test_what_describe_configs_shows_parses_back() -> None:
    for key in TOPIC_CONFIGS.values():
        shown = key.format(key.default)
        if shown is not None:
            assert key.parse(shown) == key.default


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", "1_000"),
        ("segment.bytes", "1_048_576"),
        ("min.cleanable.dirty.ratio", "0_0.5"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,,compact"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.insync.replicas", "0"),
        ("preallocate", "yes"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("leader.replication.throttled.replicas", "0: 1"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("min.cleanable.dirty.ratio", "0.5fd"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "Infinity"),
        ("max.message.bytes", "-1"),
        ("segment.index.bytes", "3"),
        ("flush.messages", "0"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_its_key(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed") as raised:
        parse_log_config({name: text})
    assert str(raised.value).startswith(f"{name}={text} ")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " +5 ", 5),
        ("min.cleanable.dirty.ratio", "0.5f", 0.5),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("min.cleanable.dirty.ratio", "0x1p-1", 0.5),
        ("retention.ms", "١٢", 12),
        ("leader.replication.throttled.replicas", "0:1,,1:2,", ("0:1", "", "1:2", "")),
        ("preallocate", " TRUE", True),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "delete, compact ,delete", ("delete", "compact")),
        ("leader.replication.throttled.replicas", "0:1,0:1", ("0:1", "0:1")),
    ],
)
def test_a_value_that_kafka_reads_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert parse_log_config({name: text}).value(name) == value


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"segment\.size is no topic config"):
        parse_log_config({"segment.size": "1"})


def test_settings_are_taken_over_the_brokers_defaults() -> None:
    broker = server_defaults({"log.retention.hours": "2", "log.segment.bytes": "2000000", "num.partitions": "3"})
    assert (broker.retention_ms, broker.segment_bytes) == (7_200_000, 2_000_000)
    topic = parse_log_config({"retention.ms": "-1", "cleanup.policy": "compact, delete"}, broker)
    assert (topic.retention_ms, topic.segment_bytes) == (-1, 2_000_000)
    assert topic.compact
    assert topic.delete


def test_the_most_specific_synonym_wins() -> None:
    config = server_defaults({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"})
    assert config.retention_ms == 4
    assert server_defaults({"log.retention.hours": "-1"}).retention_ms == -1


def test_a_bad_server_setting_is_named_as_the_user_wrote_it() -> None:
    with pytest.raises(ValueError, match=r"log\.roll\.hours=0 is not allowed"):
        server_defaults({"log.roll.hours": "0"})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min\.compaction\.lag\.ms"):
        parse_log_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(ValueError, match=r"cleanup\.policy"):
        parse_log_config({"remote.storage.enable": "true", "cleanup.policy": "compact"})
    with pytest.raises(ValueError, match=r"local\.retention\.ms"):
        parse_log_config({"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "6"})


def test_a_compacted_log_rolls_in_time_for_its_compaction() -> None:
    settings = {"max.compaction.lag.ms": "1000", "segment.ms": "5000"}
    assert parse_log_config(settings).roll_ms == 5000
    assert parse_log_config({**settings, "cleanup.policy": "compact"}).roll_ms == 1000
