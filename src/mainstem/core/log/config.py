"""A topic's settings for its logs: Kafka 4.3's names, defaults and limits.

`TOPIC_CONFIGS` is the one table: parsing, defaults, `DescribeConfigs` and the broker's own settings (`synonyms`, the
server-wide keys a topic's default comes from, most specific first, with the factor from the synonym's unit to ours)
all read it. `LogConfig` is what the log works with, made once per change and never looked up by name on the data path.

A bad value is a ValueError of one sentence that names the key, the value and what is allowed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from mainstem.core.java_numbers import is_whole_number, parse_double

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1
INT_MIN: Final = -(1 << 31)
LONG_MIN: Final = -(1 << 63)

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000

_THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?")

Value = int | float | bool | str | tuple[str, ...] | None


class ConfigType(Enum):
    """Kafka's types, with the numbers that DescribeConfigs gives them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Synonym:
    """A server-wide key that gives a topic config its default: value times `factor`."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Value
    doc: str
    allowed: str
    """The values that are valid, in words for people."""
    is_valid: Callable[[Value], bool]
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False

    def parse(self, text: str) -> Value:
        value = _parse(self, text)
        if not self.is_valid(value):
            raise ValueError(f"{self.name}={text} is not allowed: {self.allowed}")
        return value

    def format(self, value: Value) -> str | None:
        """The value as Kafka writes it in DescribeConfigs."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case _:
                return str(value)


def _parse(key: ConfigKey, text: str) -> Value:
    stripped = text.strip()
    match key.type:
        case ConfigType.BOOLEAN:
            if stripped.lower() not in ("true", "false"):
                raise ValueError(f"{key.name}={text} is not allowed: true or false")
            return stripped.lower() == "true"
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            low, high = (INT_MIN, INT_MAX) if key.type is ConfigType.INT else (LONG_MIN, LONG_MAX)
            if not is_whole_number(stripped):
                raise ValueError(f"{key.name}={text} is not allowed: it must be a whole number")
            number = int(stripped)
            if not low <= number <= high:
                raise ValueError(f"{key.name}={text} is not allowed: it must lie between {low} and {high}")
            return number
        case ConfigType.DOUBLE:
            try:
                return parse_double(stripped)
            except ValueError:
                raise ValueError(f"{key.name}={text} is not allowed: it must be a number") from None
        case ConfigType.LIST:
            parts = [part.strip() for part in stripped.split(",")] if stripped else []
            # Kafka passes over a policy that is named twice, and keeps other lists as they are.
            return tuple(dict.fromkeys(parts) if key.name == "cleanup.policy" else parts)
        case ConfigType.STRING:
            return stripped


def _anything(value: Value) -> bool:
    return True


def _between(low: float, high: float = LONG_MAX) -> Callable[[Value], bool]:
    def check(value: Value) -> bool:
        # So that NaN passes, as it does in Kafka.
        return isinstance(value, int | float) and not (value < low or value > high)

    return check


def _one_of(*names: str) -> Callable[[Value], bool]:
    return lambda value: value in names


def _cleanup_policy(value: Value) -> bool:
    return isinstance(value, tuple) and len(set(value)) == len(value) and set(value) <= {"compact", "delete"}


def _gzip_level(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _throttled_replicas(value: Value) -> bool:
    if not isinstance(value, tuple):
        return False
    # Kafka passes over what is empty, though not over spaces inside.
    return value == ("*",) or all(_THROTTLED.fullmatch(replica) for replica in value)


def _key(
    name: str,
    type: ConfigType,
    default: Value,
    is_valid: Callable[[Value], bool],
    allowed: str,
    doc: str,
    *synonyms: Synonym,
    internal: bool = False,
) -> ConfigKey:
    return ConfigKey(name, type, default, doc, allowed, is_valid, synonyms, internal)


_COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_INT, _LONG, _BOOL, _LIST = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.LIST
_STRING, _DOUBLE = ConfigType.STRING, ConfigType.DOUBLE
_FROM_0: Final = (_between(0), "0 or more")
_FROM_1: Final = (_between(1), "1 or more")
_FROM_MINUS_1: Final = (_between(-1), "-1 or more")
_FROM_MINUS_2: Final = (_between(-2), "-2 or more")
_EITHER: Final = (_anything, "true or false")
_REPLICAS: Final = (_throttled_replicas, "* or a list of partition:broker")

_TABLE: Final = (
    _key("cleanup.policy", _LIST, ("delete",), _cleanup_policy, "compact, delete, or both",
         "What becomes of old segments: delete removes them by age and size, compact keeps the last value of each key.",
         Synonym("log.cleanup.policy")),
    _key("compression.gzip.level", _INT, -1, _gzip_level, "1 to 9, or -1 for the library's default",
         "The level at which the broker compresses with gzip.", Synonym("compression.gzip.level")),
    _key("compression.lz4.level", _INT, 9, _between(1, 17), "1 to 17",
         "The level at which the broker compresses with lz4.", Synonym("compression.lz4.level")),
    _key("compression.type", _STRING, "producer", _one_of(*_COMPRESSIONS), "one of " + ", ".join(_COMPRESSIONS),
         "The codec batches are stored with; producer keeps the one they came with.", Synonym("compression.type")),
    _key("compression.zstd.level", _INT, 3, _between(-131072, 22), "-131072 to 22",
         "The level at which the broker compresses with zstd.", Synonym("compression.zstd.level")),
    _key("delete.retention.ms", _LONG, 86_400_000, *_FROM_0,
         "How long a tombstone stays after a compaction first met it.", Synonym("log.cleaner.delete.retention.ms")),
    _key("file.delete.delay.ms", _LONG, 60_000, *_FROM_0,
         "How long a file that was removed from the log stays on disk.", Synonym("log.segment.delete.delay.ms")),
    _key("flush.messages", _LONG, LONG_MAX, *_FROM_1,
         "After how many records the log is fsynced; 1 makes every acknowledgement durable.",
         Synonym("log.flush.interval.messages")),
    _key("flush.ms", _LONG, LONG_MAX, *_FROM_0, "After how long what was written is fsynced.",
         Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    _key("follower.replication.throttled.replicas", _LIST, (), *_REPLICAS,
         "The replicas whose replication is throttled on the follower's side."),
    _key("index.interval.bytes", _INT, 4096, *_FROM_0,
         "After how many bytes of batches the offset index gets an entry.", Synonym("log.index.interval.bytes")),
    _key("internal.segment.bytes", _INT, None, _anything, "any size",
         "The segment size for tests, below what segment.bytes allows.", internal=True),
    _key("leader.replication.throttled.replicas", _LIST, (), *_REPLICAS,
         "The replicas whose replication is throttled on the leader's side."),
    _key("local.retention.bytes", _LONG, -2, *_FROM_MINUS_2,
         "How much of a tiered log stays on local disk; -2 is retention.bytes.", Synonym("log.local.retention.bytes")),
    _key("local.retention.ms", _LONG, -2, *_FROM_MINUS_2,
         "How long a tiered log's segments stay on local disk; -2 is retention.ms.", Synonym("log.local.retention.ms")),
    _key("max.compaction.lag.ms", _LONG, LONG_MAX, *_FROM_1,
         "How long a record may stay uncompacted.", Synonym("log.cleaner.max.compaction.lag.ms")),
    _key("max.message.bytes", _INT, 1_048_588, *_FROM_0,
         "The largest batch that is taken, as it is stored.", Synonym("message.max.bytes")),
    _key("message.timestamp.after.max.ms", _LONG, 3_600_000, *_FROM_0,
         "How far a record's timestamp may be ahead of the broker's clock.",
         Synonym("log.message.timestamp.after.max.ms")),
    _key("message.timestamp.before.max.ms", _LONG, LONG_MAX, *_FROM_0,
         "How far a record's timestamp may be behind the broker's clock.",
         Synonym("log.message.timestamp.before.max.ms")),
    _key("message.timestamp.type", _STRING, "CreateTime", _one_of("CreateTime", "LogAppendTime"),
         "CreateTime or LogAppendTime", "Whose time a record carries: its producer's or the leader's.",
         Synonym("log.message.timestamp.type")),
    _key("min.cleanable.dirty.ratio", _DOUBLE, 0.5, _between(0, 1), "0 to 1",
         "How much of a log must be new before it is compacted again.", Synonym("log.cleaner.min.cleanable.ratio")),
    _key("min.compaction.lag.ms", _LONG, 0, *_FROM_0,
         "How long a record stays uncompacted at least.", Synonym("log.cleaner.min.compaction.lag.ms")),
    _key("min.insync.replicas", _INT, 1, *_FROM_1,
         "How many replicas must have a batch before acks=all is answered.", Synonym("min.insync.replicas")),
    _key("preallocate", _BOOL, False, *_EITHER,
         "Whether a new segment's file is made at its full size.", Synonym("log.preallocate")),
    _key("remote.log.copy.disable", _BOOL, False, *_EITHER,
         "Whether a tiered log stops copying segments to remote storage."),
    _key("remote.log.delete.on.disable", _BOOL, False, *_EITHER,
         "Whether remote segments are deleted when tiering is turned off."),
    _key("remote.storage.enable", _BOOL, False, *_EITHER, "Whether the log is tiered to remote storage."),
    _key("retention.bytes", _LONG, -1, _anything, "a number of bytes, or -1 for no limit",
         "How large a partition may grow before its oldest segments go.", Synonym("log.retention.bytes")),
    _key("retention.ms", _LONG, 604_800_000, *_FROM_MINUS_1,
         "How long a segment is kept after its newest record; -1 is forever.", Synonym("log.retention.ms"),
         Synonym("log.retention.minutes", _MINUTE_MS), Synonym("log.retention.hours", _HOUR_MS)),
    _key("segment.bytes", _INT, 1 << 30, _between(1 << 20), "1048576 or more",
         "How large a segment grows.", Synonym("log.segment.bytes")),
    _key("segment.index.bytes", _INT, 10 << 20, _between(4), "4 or more",
         "How large a segment's index grows before the segment is rolled.", Synonym("log.index.size.max.bytes")),
    _key("segment.jitter.ms", _LONG, 0, *_FROM_0, "By how much at most a segment is rolled early, at random.",
         Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    _key("segment.ms", _LONG, 604_800_000, *_FROM_1, "After how long a segment is rolled though it is not full.",
         Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    _key("unclean.leader.election.enable", _BOOL, False, *_EITHER,
         "Whether a replica that is not in sync may lead, losing records.", Synonym("unclean.leader.election.enable")),
)  # fmt: skip

TOPIC_CONFIGS: Final[dict[str, ConfigKey]] = {key.name: key for key in _TABLE}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic. Field names are Kafka's keys with `_` for `.`; `segment_bytes` is what is used."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_bytes(self) -> int:
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def roll_ms(self) -> int:
        """A compacted log rolls early enough that nothing stays uncompacted for longer than it may."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms

    def value(self, name: str) -> Value:
        """The value of a topic config by Kafka's name."""
        found: Value = getattr(self, TOPIC_CONFIGS[name].name.replace(".", "_"))
        return found


_FIELDS: Final = tuple(field.name for field in fields(LogConfig))


def parse_log_config(settings: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
    """A topic's config from its own settings over the broker's defaults. ValueError for any that is not allowed."""
    values: dict[str, Value] = {}
    if defaults is not None:
        values = {name: getattr(defaults, name) for name in _FIELDS}
    for name, text in settings.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ValueError(f"{name} is no topic config")
        values[name.replace(".", "_")] = key.parse(text)
    config = LogConfig(**values)  # type: ignore[arg-type]
    _check_together(config)
    return config


def server_defaults(settings: Mapping[str, str]) -> LogConfig:
    """The defaults that a broker's own settings give to topics; keys that no topic config comes from are ignored."""
    values: dict[str, str] = {}
    for key in _TABLE:
        for synonym in key.synonyms:
            text = settings.get(synonym.name)
            if text is None:
                continue
            if synonym.factor != 1:
                number = _parse(key, text)
                assert isinstance(number, int)
                text = str(number * synonym.factor if number >= 0 else number)
            try:
                key.parse(text)
            except ValueError as error:
                raise ValueError(f"{synonym.name}={settings[synonym.name]} is not allowed: {key.allowed}") from error
            values[key.name] = text
            break
    return parse_log_config(values)


def _check_together(config: LogConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ValueError(
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} is above "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
        )
    if not config.remote_storage_enable:
        return
    if config.compact:
        raise ValueError("remote.storage.enable=true cannot be combined with cleanup.policy=compact")
    local_bytes, local_ms = config.local_retention_bytes, config.local_retention_ms
    if config.retention_bytes >= 0 and (local_bytes == -1 or local_bytes > config.retention_bytes):
        raise ValueError(
            f"local.retention.bytes={local_bytes} is above retention.bytes={config.retention_bytes}; -2 follows it"
        )
    if config.retention_ms >= 0 and (local_ms == -1 or local_ms > config.retention_ms):
        raise ValueError(f"local.retention.ms={local_ms} is above retention.ms={config.retention_ms}; -2 follows it")
