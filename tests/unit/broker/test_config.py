"""A node's settings: Kafka's own file is read, and a mistake is one sentence that helps."""

import ast
from pathlib import Path

import pytest

import mainstem.broker.config as config_module
from mainstem.broker.config import EFFECTIVE, FULFILLED, BrokerConfig, ConfigError, Endpoint
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


def test_a_setting_has_an_effect_exactly_if_the_source_reads_it() -> None:
    """Else a setting that works is warned of, or one that does nothing is not."""
    assert settings_read() == EFFECTIVE
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
            if path.name in ("settings.py", "config_changes.py", "config_view.py"):
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
