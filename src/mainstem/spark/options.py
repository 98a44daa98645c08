"""What `format("mainstem")` can be told, read and checked. Names, defaults and meanings are Spark's Kafka source's.

Spark hands options over in lower case, all of them text. What is wrong is a ValueError of one sentence that names the
option, the value and the way out. Options of our own, besides Spark's: `path`, `valueFormat`, `pushFilters`,
`splitBytes`, `maxBytesPerTrigger` for reading; `guarantee`, `twoPhaseCommit`, `sinkId`, `txnAppId`, `txnVersion`,
`useTimestampColumn` for writing.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final

from mainstem.client.options import CommonOptions, ConsumerOptions, ProducerOptions
from mainstem.spark import cores
from mainstem.spark.offsets import EARLIEST, LATEST, Offsets, Partition, names, parse_offsets, parse_partitions
from mainstem.spark.splits import SPLIT_BYTES, even_bytes

log = logging.getLogger(__name__)

_KAFKA: Final = "kafka."
_FILE: Final = "file:/"
"""How Spark's own sources may have a folder of the file system named."""
_JAVA_ONLY: Final = "classes of Java do not run here; do to the columns what it does, and leave it out"
_REFUSED_READING: Final = {
    "auto.offset.reset": "say startingOffsets instead",
    "enable.auto.commit": "Spark keeps its own positions, in the checkpoint",
    "key.deserializer": "keys are read as bytes; cast the column, or use valueFormat",
    "value.deserializer": "values are read as bytes; cast the column, or use valueFormat",
    "interceptor.classes": _JAVA_ONLY,
}
_REFUSED_WRITING: Final = {
    "key.serializer": "keys are bytes or strings; cast the column",
    "value.serializer": "values are bytes or strings; cast the column",
    "interceptor.classes": _JAVA_ONLY,
    "transaction.two.phase.commit.enable": "say twoPhaseCommit instead",
    "transactional.id": "the sink names its own transactions; say sinkId to name the sink",
}
_OF_NO_USE: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.class",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    }
)
"""Options that Kafka's own clients have and that mean nothing here, where nobody is a member of a group: a job that has
them moves as it is."""


def _names(client: type[CommonOptions]) -> frozenset[str]:
    return frozenset(each.name.replace("_", ".") for each in fields(client))


_OF_EITHER: Final = _names(ConsumerOptions) | _names(ProducerOptions)

_OF_NO_USE_IN_PLAIN_TEXT: Final = ("ssl.", "sasl.")
"""How options begin that a connection in plain text has no use for. Kafka's clients leave them unread there."""

_DURATION: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(us|microseconds?|ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)?"
)
_UNIT_MS: Final = {
    "us": 0.001,
    "mic": 0.001,
    "ms": 1.0,
    "mil": 1.0,
    "s": 1000.0,
    "m": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}
"""By how the name of a unit begins; the first that fits counts."""


class Kind(Enum):
    """How a bound of what is read is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMPS = "timestamps"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Bound:
    kind: Kind
    offsets: Offsets = field(default_factory=dict)
    """Offsets, or timestamps in milliseconds."""
    timestamp_ms: int = 0
    option: str = ""


@dataclass(frozen=True, slots=True)
class Topics:
    """One of the three is given; for segment files, none of them means all."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[Partition, ...] = ()

    def matches(self, topic: str, partition: int) -> bool:
        if self.partitions:
            return (topic, partition) in self.partitions
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return not self.names or topic in self.names


@dataclass(frozen=True, slots=True)
class SourceOptions:
    topics: Topics
    starting: Bound
    ending: Bound
    late_timestamps_start_at_latest: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: float
    fetch_retries: int
    fetch_retry_interval_ms: int
    poll_timeout_ms: int
    group_id: str | None
    value_format: str | None
    push_filters: bool
    split_bytes: int | None
    path: str | None
    kafka: ConsumerOptions

    def batch_split_bytes(self, total_bytes: float) -> int:
        """How large a task of a batch is to be. A stream keeps the order of a partition unless it is told to cut."""
        if self.split_bytes is not None:
            return self.split_bytes
        return SPLIT_BYTES if self.min_partitions is not None else even_bytes(total_bytes, cores.here())


@dataclass(frozen=True, slots=True)
class SinkOptions:
    topic: str | None
    exactly_once: bool
    two_phase: bool
    sink_id: str | None
    txn_app_id: str | None
    txn_version: int | None
    use_timestamp_column: bool
    kafka: ProducerOptions


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = {name.lower(): value for name, value in given.items()}
    path = options.get("path")
    if path is not None and path.startswith(_FILE):
        path = "/" + path.removeprefix(_FILE).lstrip("/")
    topics = _topics(options, needed=path is None)
    if streaming and path is not None:
        raise ValueError("path: segment files are read with spark.read, not as a stream; leave path out to stream")
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp"):
            if name.lower() in options:
                raise ValueError(f"{name}: a stream has no end; leave it out, or read with spark.read")
        if "endingtimestamp" in options:
            # Spark's own source takes this one without a word, and a job is to move as it is.
            log.warning("endingTimestamp: a stream has no end; the option does nothing")
            del options["endingtimestamp"]
    starting = _bound(options, "starting", Kind.LATEST if streaming else Kind.EARLIEST)
    ending = _bound(options, "ending", Kind.LATEST)
    if not streaming:
        _check_batch_bounds(starting, ending)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError(f"startingOffsetsByTimestampStrategy: must be error or latest; it is {strategy}")
    value_format = options.get("valueformat")
    if value_format is not None and value_format not in ("json", "string"):
        raise ValueError(f"valueFormat: must be json or string; it is {value_format}")
    kafka = _kafka_options(options, _REFUSED_READING, ConsumerOptions)
    group_id = kafka.pop("group.id", None)
    least = _integer(options, "minOffsetsPerTrigger", at_least=1)
    most = _integer(options, "maxOffsetsPerTrigger", at_least=1)
    if least is not None and most is not None and least > most:
        raise ValueError(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger allows, which is {most}")
    return SourceOptions(
        topics=topics,
        starting=starting,
        ending=ending,
        late_timestamps_start_at_latest=strategy == "latest",
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=_flag(options, "includeHeaders", False),
        min_partitions=_integer(options, "minPartitions", at_least=1),
        max_records_per_partition=_integer(options, "maxRecordsPerPartition", at_least=1),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_bytes_per_trigger=_integer(options, "maxBytesPerTrigger", at_least=1),
        max_trigger_delay_ms=_duration_ms(options.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        fetch_retries=_integer(options, "fetchOffset.numRetries", at_least=0, default=3) or 0,
        fetch_retry_interval_ms=_integer(options, "fetchOffset.retryIntervalMs", at_least=0, default=1000) or 0,
        poll_timeout_ms=_integer(options, "kafkaConsumer.pollTimeoutMs", at_least=1, default=120_000) or 0,
        group_id=group_id,
        value_format=value_format,
        push_filters=_flag(options, "pushFilters", False),
        split_bytes=_integer(options, "splitBytes", at_least=1),
        path=path,
        kafka=_consumer(kafka, needs_servers=path is None, prefix=options.get("groupidprefix")),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = {name.lower(): value for name, value in given.items()}
    guarantee = options.get("guarantee", "exactly_once").lower()
    if guarantee not in ("exactly_once", "at_least_once"):
        raise ValueError(f"guarantee: must be exactly_once or at_least_once; it is {guarantee}")
    app, version = options.get("txnappid"), _integer(options, "txnVersion", at_least=0)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError("topic: it is empty; name the topic to write to, or leave it out for a column topic")
    if (app is None) != (version is None):
        raise ValueError("txnAppId and txnVersion: give both to name a write, or neither")
    two_phase = _flag(options, "twoPhaseCommit", False)
    if two_phase and guarantee != "exactly_once":
        raise ValueError("twoPhaseCommit: is for guarantee exactly_once; leave one of the two out")
    kafka = _kafka_options(options, _REFUSED_WRITING, ProducerOptions)
    if kafka.get("enable.idempotence", "").lower() == "false":
        # A job that moves as it is asks for less than it gets.
        log.warning("kafka.enable.idempotence: rows are written idempotently all the same; the option does nothing")
    _need_servers(kafka)
    return SinkOptions(
        topic=topic,
        exactly_once=guarantee == "exactly_once",
        two_phase=two_phase,
        sink_id=options.get("sinkid"),
        txn_app_id=app,
        txn_version=version,
        use_timestamp_column=_flag(options, "useTimestampColumn", False),
        # Whole columns are sent: small batches would only cost.
        kafka=ProducerOptions.from_kwargs({"client.id": "mainstem-spark", "batch.size": str(512 << 10), **kafka}),
    )


def _topics(options: Mapping[str, str], *, needed: bool) -> Topics:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: only one of subscribe, subscribePattern and assign can be given")
    if not given:
        if needed:
            raise ValueError(
                "subscribe: say which topics to read with one of subscribe (a,b), subscribePattern (a regular "
                'expression) or assign ({"a": [0, 1]})'
            )
        return Topics()
    value = options[given[0].lower()]
    if given[0] == "assign":
        return Topics(partitions=tuple(parse_partitions(value, "assign")))
    if not value.strip():
        raise ValueError(f"{given[0]}: it is empty")
    if given[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not names:
            raise ValueError(f"subscribe: names no topic; it is {value!r}")
        return Topics(names=names)
    try:
        re.compile(value.strip())
    except re.error as error:
        raise ValueError(f"subscribePattern: {value} is no regular expression: {error}") from error
    return Topics(pattern=value.strip())


def _bound(options: Mapping[str, str], which: str, default: Kind) -> Bound:
    """The one that counts where several are given: a timestamp for all, then timestamps, then offsets, as in Spark."""
    option = f"{which}Timestamp"
    if option.lower() in options:
        return Bound(Kind.TIMESTAMP, timestamp_ms=_number(options[option.lower()], option, at_least=0), option=option)
    option = f"{which}OffsetsByTimestamp"
    if option.lower() in options:
        stamps = parse_offsets(options[option.lower()], option)
        if any(stamp < 0 for stamp in stamps.values()):
            raise ValueError(f"{option}: a timestamp is milliseconds since 1970, none of them below 0")
        return Bound(Kind.TIMESTAMPS, stamps, option=option)
    option = f"{which}Offsets"
    text = options.get(option.lower())
    if text is None:
        return Bound(default, option=option)
    if text.strip().lower() in ("earliest", "latest"):
        return Bound(Kind(text.strip().lower()), option=option)
    if not text.lstrip().startswith("{"):
        raise ValueError(f'{option}: must be earliest, latest or JSON like {{"topicA": {{"0": 23}}}}; it is {text}')
    offsets = parse_offsets(text, option)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise ValueError(f"{option}: an offset is 0 or more, -1 for latest or -2 for earliest; it is {text}")
    return Bound(Kind.OFFSETS, offsets, option=option)


def _check_batch_bounds(starting: Bound, ending: Bound) -> None:
    if starting.kind is Kind.LATEST or (starting.kind is Kind.OFFSETS and LATEST in starting.offsets.values()):
        raise ValueError("startingOffsets: latest (-1) leaves nothing to read in a batch; say earliest or offsets")
    if ending.kind is Kind.EARLIEST or (ending.kind is Kind.OFFSETS and EARLIEST in ending.offsets.values()):
        raise ValueError("endingOffsets: earliest (-2) leaves nothing to read in a batch; say latest or offsets")
    if starting.kind is Kind.OFFSETS and ending.kind is Kind.OFFSETS:
        for where, start in sorted(starting.offsets.items()):
            end = ending.offsets.get(where, LATEST)
            if start > end >= 0:
                raise ValueError(f"startingOffsets: {names([where])} starts at {start}, after endingOffsets, {end}")


def _kafka_options(options: Mapping[str, str], refused: Mapping[str, str], own: type[CommonOptions]) -> dict[str, str]:
    kafka = {name.removeprefix(_KAFKA): value for name, value in options.items() if name.startswith(_KAFKA)}
    # A job may have one set of options for what it reads and writes: Kafka's clients leave unread what the other's are.
    foreign = _OF_EITHER - _names(own)
    for name in (_OF_NO_USE | foreign) & kafka.keys():
        log.info("kafka.%s means nothing here and is left out", name)
        del kafka[name]
    protocol = kafka.get("security.protocol", "PLAINTEXT").strip()
    unread = sorted(name for name in kafka if name.startswith(_OF_NO_USE_IN_PLAIN_TEXT))
    if protocol.upper() == "PLAINTEXT":
        kafka.pop("security.protocol", None)
        for name in unread:
            del kafka[name]
        if unread:
            log.warning("kafka.%s: connections are in plain text, where it does nothing", ", kafka.".join(unread))
    for name, instead in refused.items():
        if name in kafka:
            raise ValueError(f"kafka.{name}: cannot be given; {instead}")
    return kafka


def _consumer(kafka: dict[str, str], *, needs_servers: bool, prefix: str | None) -> ConsumerOptions:
    if needs_servers:
        _need_servers(kafka)
    client_id = prefix or "mainstem-spark"
    # Whole fetches become Arrow batches: large ones are what makes them cheap.
    defaults = {"client.id": client_id, "max.partition.fetch.bytes": str(8 << 20)}
    return ConsumerOptions.from_kwargs({**defaults, **kafka})


def _need_servers(kafka: Mapping[str, str]) -> None:
    if not kafka.get("bootstrap.servers"):
        raise ValueError("kafka.bootstrap.servers: say where the brokers are, as in 127.0.0.1:9092")


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name}: must be true or false; it is {text}")
    return text.lower() == "true"


def _integer(options: Mapping[str, str], name: str, *, at_least: int, default: int | None = None) -> int | None:
    text = options.get(name.lower())
    return default if text is None else _number(text, name, at_least=at_least)


def _number(text: str, name: str, *, at_least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise ValueError(f"{name}: must be a whole number, at least {at_least}; it is {text}")
    return number


def _duration_ms(text: str, name: str) -> float:
    """`15m`, `15min`, `30 seconds`; a number alone is milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{name}: must be a duration like 30s or 15m; it is {text}")
    unit = found[2] or "ms"
    return float(found[1]) * next(size for begins, size in _UNIT_MS.items() if unit.startswith(begins))


def describe(options: SourceOptions) -> str:
    """What is read, for a sentence."""
    topics = options.topics
    if topics.partitions:
        return json.dumps(sorted(f"{topic}-{number}" for topic, number in topics.partitions))
    return topics.pattern or ", ".join(topics.names) or "all topics"
