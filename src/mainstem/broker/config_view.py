"""Settings as they are in force, and where each comes from: what DescribeConfigs tells.

A broker's setting comes from the first of these that has it: its own dynamic configs, the cluster's dynamic defaults,
its file, Kafka's default. Some settings stand for one thing in several units (`log.retention.ms`, `.minutes`,
`.hours`), and a topic's or a group's config falls back on a broker's setting: these are its synonyms, listed in the
order in which they count. Rules, Kafka's:

- A dynamic setting takes the place of all of its synonyms: with `log.retention.ms` set while running, the file's
  `log.retention.hours` is as if it were not there.
- Synonyms are listed from the first that has the setting's own name; what comes before it belongs to another.
- What Kafka does not know (a plugin's setting) is sensitive, because it may be a password: its value is not told.
- A setting that may not change while running has no effect when it is found among the dynamic ones.
"""

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

from mainstem.broker.settings import SETTINGS
from mainstem.core.controller.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, ClusterImage
from mainstem.core.java_numbers import is_whole_number, parse_double
from mainstem.core.log.config import TOPIC_CONFIGS, ConfigKey, LogConfig, Value, server_defaults


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    BROKER = 2
    BROKER_DEFAULT = 3
    FILE = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...] = ()
    kind: int = 0
    """The type as DescribeConfigs numbers it; 0 where it is not known."""
    is_read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None


KINDS: Final = {
    "bool": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_UNKNOWN: Final = 0
_SENSITIVE: Final = (_UNKNOWN, KINDS["password"])

THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Settings that exist only while running, as numbers of bytes."""

_SAME: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: names for names in _SAME for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_SETTINGS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)

# Kafka's 17 group configs: those that fall back on the broker's `group.<name>`, and those with a default of their own.
_GROUP_BY_BROKER: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
)
_GROUP_OWN: Final = {
    "share.auto.offset.reset": ("string", "latest"),
    "share.isolation.level": ("string", "read_uncommitted"),
    "share.renew.acknowledge.enable": ("bool", "true"),
}
_CLIENT_METRICS: Final = {"interval.ms": ("int", "300000"), "match": ("list", ""), "metrics": ("list", "")}


def synonyms_of(name: str, with_listener: bool = True) -> tuple[str, ...]:
    """The settings that give a broker's setting its value, the one that counts most first."""
    found = _SYNONYMS.get(name)
    if found is not None:
        return found
    listener = _LISTENER.fullmatch(name) if with_listener else None
    if listener is None:
        return (name,)
    base = listener[1]
    return (name, next((each for each in _MECHANISM_SETTINGS if base.endswith(each)), base))


def kind_of(name: str) -> int:
    """The type of a broker's setting, also of one for a single listener."""
    if name in THROTTLES:
        return KINDS["long"]
    for each in (name, *synonyms_of(name)):
        if each in SETTINGS:
            return KINDS[SETTINGS[each].kind]
    return _UNKNOWN


def is_updatable(name: str) -> bool:
    return name in THROTTLES or (name in SETTINGS and SETTINGS[name].is_updatable)


def format_value(kind: int, text: str) -> str:
    """The value as Kafka writes it after parsing; as it is where it cannot be parsed."""
    stripped = text.strip()
    match kind:
        case 1:
            return stripped.lower()
        case 3 | 4 | 5:
            return str(int(stripped)) if is_whole_number(stripped) else stripped
        case 6:
            try:
                return format_double(parse_double(stripped))
            except ValueError:
                return stripped
        case 7:
            return ",".join(part.strip() for part in stripped.split(","))
        case _:
            return stripped


def format_double(number: float) -> str:
    """As Java's Double.toString: plain from a thousandth to ten millions, else d.dddE±n."""
    if number == 0 or number != number or abs(number) == float("inf"):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(number), str(number))
    if 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{number:.17e}".partition("e")
    for precision in range(1, 18):
        digits, _, exponent = f"{number:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == number:
            break
    return f"{digits}E{int(exponent)}"


def _shown(key: ConfigKey, value: Value) -> str | None:
    return format_double(value) if isinstance(value, float) else key.format(value)


class ConfigView:
    """The settings of one broker at one moment; made for a request and thrown away."""

    def __init__(self, given: Mapping[str, str], image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._file = {**given, "node.id": str(node_id), "broker.id": str(node_id)}
        self._dynamic = _effective(image.config(BROKER, str(node_id)))
        self._default = _effective(image.config(BROKER, ""))

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What is set, dynamically or in the file, and in force; Kafka's defaults are not among it."""
        return self.settings_with(self._dynamic, self._default)

    def settings_with(self, dynamic: Mapping[str, str], default: Mapping[str, str]) -> dict[str, str]:
        """The same as it would be with these dynamic settings of the broker and of the cluster."""
        settings = dict(self._file)
        for override in (default, dynamic):
            for name, value in override.items():
                for synonym in synonyms_of(name, with_listener=False):
                    settings.pop(synonym, None)
                settings[name] = value
        return settings

    def get(self, name: str) -> str | None:
        """A broker's setting as it is in force."""
        value = self.settings.get(name)
        return SETTINGS[name].default if value is None else value

    def get_int(self, name: str) -> int:
        """ValueError where it is none."""
        text = (self.get(name) or "").strip()
        if not is_whole_number(text):
            raise ValueError(f"{name} is '{text}', which is no whole number")
        return int(text)

    def get_float(self, name: str) -> float:
        text = (self.get(name) or "").strip()
        try:
            return parse_double(text)
        except ValueError:
            raise ValueError(f"{name} is '{text}', which is no number") from None

    @property
    def dynamic(self) -> Mapping[str, str]:
        return self._dynamic

    @property
    def default(self) -> Mapping[str, str]:
        return self._default

    @cached_property
    def _log_defaults(self) -> LogConfig:
        return server_defaults(self.settings)

    # Resources

    def topic(self, name: str) -> list[Entry]:
        own = self._image.config(TOPIC, name)
        entries = []
        for key in TOPIC_CONFIGS.values():
            if key.internal:
                continue
            kind = key.type.value
            if key.name in own:
                value: str | None = _shown(key, key.parse(own[key.name]))
            else:
                value = _shown(key, self._log_defaults.value(key.name))
            synonyms = self._synonyms(key.synonyms[0].name, False) if key.synonyms else ()
            if key.name in own:
                synonyms = (Synonym(key.name, value, Source.TOPIC), *synonyms)
            entries.append(Entry(key.name, value, _first(synonyms), synonyms, kind, documentation=key.doc))
        return entries

    def broker(self) -> list[Entry]:
        return [self._broker_entry(name) for name in sorted({*SETTINGS, *self.settings})]

    def _broker_entry(self, name: str) -> Entry:
        kind = kind_of(name)
        is_sensitive = kind in _SENSITIVE
        value = self.settings.get(name)
        if value is None:
            value = SETTINGS[name].default
        elif name in SETTINGS:
            value = format_value(kind, value)
        synonyms = self._synonyms(name, is_sensitive)
        return Entry(
            name,
            None if is_sensitive else value,
            _first(synonyms),
            synonyms,
            kind,
            is_read_only=not is_updatable(name),
            is_sensitive=is_sensitive,
        )

    def broker_defaults(self) -> list[Entry]:
        """What is set for all brokers while running."""
        entries = []
        for name, value in sorted(self._default.items()):
            kind = kind_of(name)
            is_sensitive = kind in _SENSITIVE
            shown = None if is_sensitive else value
            synonym = Synonym(name, shown, Source.BROKER_DEFAULT)
            entries.append(
                Entry(name, shown, Source.BROKER_DEFAULT, (synonym,), kind, not is_updatable(name), is_sensitive)
            )
        return entries

    def group(self, name: str) -> list[Entry]:
        own = self._image.config(GROUP, name)
        entries = []
        for key in _GROUP_BY_BROKER:
            setting = f"group.{key}"
            value = own.get(key, self.get(setting)) or ""
            entries.append(_group_entry(key, kind_of(setting), value, key in own, self._synonyms(setting, False)))
        for key, (kind, default) in _GROUP_OWN.items():
            fallback = (Synonym(key, default, Source.DEFAULT),)
            entries.append(_group_entry(key, KINDS[kind], own.get(key, default), key in own, fallback))
        return entries

    def client_metrics(self, name: str) -> list[Entry]:
        own = self._image.config(CLIENT_METRICS, name)
        entries = []
        for key, (kind, default) in _CLIENT_METRICS.items():
            value = format_value(KINDS[kind], own.get(key, default))
            synonyms = (Synonym(key, value, Source.CLIENT_METRICS),) if key in own else ()
            entries.append(Entry(key, value, _first(synonyms), synonyms, KINDS[kind]))
        return entries

    # Synonyms

    def _synonyms(self, name: str, is_sensitive: bool) -> tuple[Synonym, ...]:
        found = [
            Synonym(each, None if is_sensitive else value, source)
            for each, value, source in self._all_sources(synonyms_of(name))
        ]
        while found and found[0].name != name:
            del found[0]
        return tuple(found)

    def _all_sources(self, names: tuple[str, ...]) -> Iterator[tuple[str, str, Source]]:
        for settings, source in (
            (self._dynamic, Source.BROKER),
            (self._default, Source.BROKER_DEFAULT),
            (self._file, Source.FILE),
        ):
            for name in names:
                if name in settings:
                    yield name, settings[name], source
        for name in names:
            default = SETTINGS[name].default if name in SETTINGS else None
            if default is not None:
                yield name, default, Source.DEFAULT


def _effective(stored: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in stored.items() if name not in SETTINGS or is_updatable(name)}


def _first(synonyms: tuple[Synonym, ...]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT


def _group_entry(name: str, kind: int, value: str, is_own: bool, fallback: tuple[Synonym, ...]) -> Entry:
    shown = format_value(kind, value)
    synonyms = (Synonym(name, shown, Source.GROUP), *fallback) if is_own else fallback
    return Entry(name, shown, _first(synonyms), synonyms, kind)
