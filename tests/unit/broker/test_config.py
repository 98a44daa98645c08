"""A node's settings: Kafka's own file is read, and a mistake is one sentence that helps."""

import ast
from pathlib import Path

import pytest

import mainstem.broker.config as config_module
from mainstem.broker.config import EFFECTIVE, FULFILLED, BrokerConfig, ConfigError, Endpoint
from mainstem.broker.endpoints import own_host_name, read_listeners
from mainstem.broker.settings import INTERNAL_SETTINGS, SETTINGS
from mainstem.core.log.config import TOPIC_CONFIGS
from mainstem.storage.properties import parse_properties

MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/a, /data/b",
}


def test_kafkas_own_file_is_read() -> None:
    config = BrokerConfig(MINIMAL | {"num.partitions": "3"})
    assert config.node_id == 1
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.metadata_dir == "/data/a"
    assert config.client_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.controller_endpoint == Endpoint("CONTROLLER", "127.0.0.1", 9093)
    assert config.get_int("num.partitions") == 3
    assert config.get_int("log.segment.bytes") == 1 << 30
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num.partitions": "many"}, "num.partitions is 'many'; it must be a whole number"),
        ({"auto.create.topics.enable": "yes"}, "it must be true or false"),
        ({"listeners": "PLAINTEXT:127.0.0.1:9092"}, "a listener is written NAME://host:port"),
        ({"listeners": "CONTROLLER://127.0.0.1:9093"}, "listeners has none for clients"),
        ({"listeners": "A://h:1,CONTROLLER://h:1"}, "gives port 1 to both A and CONTROLLER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "give the address by which they reach this node"),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER is not one of the listeners: PLAINTEXT, CONTROLLER"),
        ({"advertised.listeners": ""}, "advertised.listeners is ''; it must have a listener for clients"),
        ({"listeners": "FOO://h:1,CONTROLLER://h:2"}, "listener.security.protocol.map gives no protocol"),
        ({"listener.security.protocol.map": "abc"}, "an entry is written NAME:PROTOCOL"),
        ({"listener.security.protocol.map": ""}, "gives no protocol; add PLAINTEXT:PLAINTEXT to it"),
        ({"inter.broker.listener.name": "abc"}, "is 'abc'; it must be a listener for clients: PLAINTEXT"),
        ({"node.id": "-1"}, "node.id is -1; it must be 0 or above"),
        ({"process.roles": "broker"}, "process.roles is 'broker'"),
        ({"log.dirs": ""}, "log.dirs is empty"),
        ({"authorizer.class.name": "x.Y"}, "authorization is not built yet"),
        ({"listeners": "SASL_SSL://h:1,CONTROLLER://h:2"}, "SASL_SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}, "the protocol SSL"),
    ],
)
def test_an_invalid_setting_is_one_sentence_that_names_key_value_and_what_is_allowed(
    change: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(MINIMAL | change)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_known_setting_without_effect_and_an_unknown_one_are_a_warning_each() -> None:
    config = BrokerConfig(MINIMAL | {"num.io.threads": "8", "num.partitons": "3"})
    assert config.warnings == (
        "num.io.threads is a setting of Kafka's that has no effect here",
        "num.partitons is not a setting; did you mean num.partitions?",
    )


def test_every_setting_has_a_default_of_its_type() -> None:
    for setting in SETTINGS.values():
        if setting.default is not None and setting.kind in ("int", "long", "short"):
            int(setting.default)


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# c\n! c\na=1\n b : 2\nc 3\nlong=x,\\\n    y\nempty=\nesc\\=aped=\\u0041\\tb\\\\\na=4\nkey\n"
    assert parse_properties(text) == {
        "a": "4",
        "b": "2",
        "c": "3",
        "long": "x,y",
        "empty": "",
        "esc=aped": "A\tb\\",
        "key": "",
    }


def test_every_setting_with_an_effect_is_one_that_kafka_has() -> None:
    assert set(SETTINGS) | set(INTERNAL_SETTINGS) >= EFFECTIVE


def test_listeners_are_named_as_one_likes_and_compared_in_capitals() -> None:
    config = BrokerConfig(
        MINIMAL
        | {
            "listeners": "internal://127.0.0.1:1,External://[::1]:2,controller://127.0.0.1:3",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,external:plaintext,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "internal",
            "controller.listener.names": "Controller",
        }
    )
    assert [str(each) for each in config.client_listeners] == ["INTERNAL://127.0.0.1:1", "EXTERNAL://[::1]:2"]
    assert config.advertised[1].address == "[::1]:2"


def test_a_listener_without_a_host_is_told_by_the_name_of_this_machine() -> None:
    given = MINIMAL | {"listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"}
    found = read_listeners(given, lambda: "machine.example")
    assert found.bound[0] == Endpoint("PLAINTEXT", "", 9092)
    assert found.advertised[0] == Endpoint("PLAINTEXT", "machine.example", 9092)
    assert BrokerConfig(given).advertised[0].host == own_host_name() != ""


def _refusals(*pairs: str) -> dict[str, str]:
    """What is said to each of the settings that is refused."""
    said = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            BrokerConfig(MINIMAL | {key: value})
        except ConfigError as error:
            said[pair] = str(error)
    return said


@pytest.mark.parametrize(
    "key",
    [
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        "max.request.partition.size.limit",
        "num.io.threads",
    ],
)
def test_a_number_that_kafka_does_not_take_is_refused(key: str) -> None:
    said = _refusals(f"{key}=0", f"{key}=1", f"{key}=1_000", f"{key}=١", f"{key}= 5 ", f"{key}=+5")
    assert list(said) == [f"{key}=0", f"{key}=1_000"]
    assert said[f"{key}=0"].startswith(f"{key} is 0; it must be at least 1")


def test_a_list_has_no_empty_entries_and_a_fraction_no_underscores() -> None:
    said = _refusals(
        "cordoned.log.dirs=,",
        "controller.quorum.voters=1@h:9093,",
        "log.cleaner.io.max.bytes.per.second=1_000",
        "log.cleaner.io.max.bytes.per.second=1e3",
    )
    assert list(said) == [
        "cordoned.log.dirs=,",
        "controller.quorum.voters=1@h:9093,",
        "log.cleaner.io.max.bytes.per.second=1_000",
    ]


def test_an_interval_is_not_negative() -> None:
    keys = (
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "max.incremental.fetch.session.cache.slots",
    )
    for key in keys:
        assert _refusals(f"{key}=-1", f"{key}=0") == {f"{key}=-1": f"{key} is -1; it must be at least 0"}


def test_the_idle_time_is_longer_than_a_refused_login_is_held() -> None:
    said = _refusals("connections.max.idle.ms=100", "connections.max.idle.ms=101", "connections.max.idle.ms=-1")
    assert list(said) == ["connections.max.idle.ms=100"]


def test_only_directories_that_are_there_are_cordoned() -> None:
    said = _refusals("cordoned.log.dirs=abc", "cordoned.log.dirs=*", "cordoned.log.dirs=/data/b")
    assert said == {"cordoned.log.dirs=abc": "cordoned.log.dirs has abc, which log.dirs has not: /data/a, /data/b"}


def test_a_quorum_of_others_is_refused_and_one_of_this_node_is_not() -> None:
    voters, servers = "controller.quorum.voters=", "controller.quorum.bootstrap.servers="
    said = _refusals(
        f"{voters}1@h:9093",
        f"{voters}1@h:9093,2@i:9093",
        f"{voters}2@h:9093",
        f"{voters}abc",
        f"{servers}h:9093",
        f"{servers}h:9093,i:9093",
        f"{servers}h:9999",
        f"{servers}abc",
    )
    assert {pair: "several controllers are not served yet" in sentence for pair, sentence in said.items()} == {
        f"{voters}1@h:9093,2@i:9093": True,
        f"{voters}2@h:9093": True,
        f"{voters}abc": False,
        f"{servers}h:9093,i:9093": True,
        f"{servers}h:9999": True,
        f"{servers}abc": False,
    }


def test_a_setting_has_an_effect_exactly_if_the_source_reads_it() -> None:
    """Else a setting that works is warned of, or one that does nothing is not."""
    only_checked = FULFILLED | {"security.inter.broker.protocol"}
    assert settings_read() - only_checked == EFFECTIVE
    assert not FULFILLED & EFFECTIVE


def settings_read() -> set[str]:
    """The names of settings in the source of the broker, but for the tables that only list or check them; and what a
    topic's config falls back on, but for those of tiered storage."""
    known = set(SETTINGS) | set(INTERNAL_SETTINGS)
    topics = [key for key in TOPIC_CONFIGS.values() if not key.name.startswith("local.retention.")]
    found = {synonym.name for key in topics for synonym in key.synonyms}
    package = Path(config_module.__file__).parents[1]
    for part in ("broker", "core", "storage", "net"):
        for path in package.joinpath(part).rglob("*.py"):
            if path.name in ("settings.py", "setting_bounds.py", "config_changes.py", "config_view.py"):
                continue
            # In `config` names stand in tables and in sentences too; there a read is a call.
            found |= read_by_call(path) if path.name == "config.py" else constants(ast.parse(path.read_text()))
    return found & known


def constants(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def read_by_call(path: Path) -> set[str]:
    reads = ("self.get", "self.is_given", "self._given.get", "given.get")
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {name for call in calls if ast.unparse(call.func).startswith(reads) for name in constants(call)}
