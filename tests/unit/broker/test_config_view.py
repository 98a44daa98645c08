"""Settings as DescribeConfigs tells them, against what Kafka 4.3.1 told with the same file and dynamic settings.

The golden has the file (`given`), what was then set by IncrementalAlterConfigs and CreateTopics (`dynamic`), and every
entry that Kafka told of each resource: name, value, read-only, source, sensitive, type, synonyms.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.config_view import ConfigView, Entry, Source, format_double, kind_of, synonyms_of
from mainstem.core.controller.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, ClusterImage
from mainstem.protocol.messages.metadata_records import ConfigRecord

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "goldens" / "describe_configs.json").read_text())


def image_of(dynamic: list[tuple[int, str, dict[str, str]]]) -> ClusterImage:
    image = ClusterImage()
    for resource_type, name, settings in dynamic:
        for key, value in settings.items():
            image.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value))
    return image


def told(view: ConfigView, resource: str) -> list[Entry]:
    kind, _, name = resource.partition(":")
    match int(kind):
        case 2:
            return view.topic(name)
        case 4:
            return view.broker() if name else view.broker_defaults()
        case 32:
            return view.group(name)
        case _:
            return view.client_metrics(name)


@pytest.mark.parametrize("resource", GOLDEN["told"])
def test_every_entry_is_what_kafka_tells(resource: str) -> None:
    view = ConfigView(GOLDEN["given"], image_of(GOLDEN["dynamic"]), 1)
    ours = {
        each.name: [
            each.name,
            each.value,
            each.is_read_only,
            each.source,
            each.is_sensitive,
            each.kind,
            [list(synonym) for synonym in each.synonyms],
        ]
        for each in told(view, resource)
    }
    assert ours == {each[0]: each for each in GOLDEN["told"][resource]}


def test_a_dynamic_setting_takes_the_place_of_its_synonyms() -> None:
    image = image_of([(BROKER, "", {"log.retention.ms": "5000"})])
    view = ConfigView({"log.retention.hours": "1", "log.retention.minutes": "2"}, image, 1)
    assert view.settings == {"node.id": "1", "broker.id": "1", "log.retention.ms": "5000"}
    entry = next(each for each in view.topic("any") if each.name == "retention.ms")
    assert (entry.value, entry.source) == ("5000", Source.BROKER_DEFAULT)


def test_a_broker_s_own_setting_counts_more_than_the_cluster_s() -> None:
    image = image_of([(BROKER, "", {"log.roll.ms": "5"}), (BROKER, "1", {"log.roll.ms": "6"})])
    assert ConfigView({}, image, 1).get("log.roll.ms") == "6"
    assert ConfigView({}, image, 2).get("log.roll.ms") == "5"


def test_what_may_not_change_while_running_has_no_effect_as_a_dynamic_setting() -> None:
    image = image_of([(BROKER, "1", {"num.partitions": "7", "a.plugin.setting": "x"})])
    view = ConfigView({"num.partitions": "3"}, image, 1)
    assert view.get("num.partitions") == "3"
    assert view.settings["a.plugin.setting"] == "x"


def test_passwords_and_unknown_settings_are_not_told() -> None:
    view = ConfigView({"ssl.key.password": "secret", "my.plugin": "secret"}, ClusterImage(), 1)
    hidden = {each.name: each for each in view.broker() if each.name in ("ssl.key.password", "my.plugin")}
    assert all(each.value is None and each.is_sensitive for each in hidden.values())
    assert "secret" not in repr(hidden)


def test_listener_settings_fall_back_on_those_of_all_listeners() -> None:
    assert synonyms_of("listener.name.a.max.connections") == ("listener.name.a.max.connections", "max.connections")
    assert synonyms_of("listener.name.a.plain.sasl.jaas.config")[-1] == "sasl.jaas.config"
    assert kind_of("listener.name.a.max.connections") == kind_of("max.connections")
    assert kind_of("no.such.setting") == 0


def test_settings_of_other_resources_do_not_mix() -> None:
    image = image_of([(TOPIC, "a", {"retention.ms": "1"}), (GROUP, "a", {"share.isolation.level": "read_committed"})])
    view = ConfigView({}, image, 1)
    assert all(each.source is Source.DEFAULT for each in view.topic("b"))
    assert all(each.source is Source.DEFAULT for each in view.group("b"))
    assert all(each.source is Source.DEFAULT for each in view.client_metrics("a"))
    assert image.config(CLIENT_METRICS, "a") == {}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (12345678.5, "1.23456785E7"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-9, "-2.5E-9"),
    ],
)
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert format_double(number) == text
