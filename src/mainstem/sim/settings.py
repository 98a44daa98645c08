"""The settings of a run's broker and of its topics: limits that are tiny, so that everything happens within seconds."""

from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.broker.config import BrokerConfig
from mainstem.sim import own_copier
from mainstem.sim.tuning import TRIMMED

if TYPE_CHECKING:
    from mainstem.sim.world import World

_AGING_SHARE: Final = 0.15
_ODD_SHARE: Final = 0.15
_TINY_METADATA_SHARE: Final = 0.3
_SMALL_SHARE: Final = 0.4
_SMALL_MAP_SHARE: Final = 0.3
MESSAGE_BYTES: Final = 1200

REACHED: Final = (
    "compression.type of a topic",
    "LogAppendTime",
    "flush.messages of a topic",
    "flush.ms of a topic",
)
"""Settings that each campaign must have had."""


def draw_config(world: "World", rng: Random) -> BrokerConfig:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": rng.choice(("/data", "/data,/more")),
        # After an empty disk (X7) our own client would create topics with fewer partitions than they had.
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.segment.bytes": "1048576",
        "group.initial.rebalance.delay.ms": rng.choice(("0", "100")),
        "group.min.session.timeout.ms": "100",
        "log.retention.check.interval.ms": "700",
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("300", "2000")),
        "log.flush.start.offset.checkpoint.interval.ms": "900",
        "replica.high.watermark.checkpoint.interval.ms": "600",
        "log.cleaner.backoff.ms": rng.choice(("400", "100")),
        "log.cleaner.dedupe.buffer.size": rng.choice(("1024", "134217728")),
        "offsets.retention.minutes": "1" if world.theme == "groups" else rng.choice(("1", "10080")),
        "offsets.retention.check.interval.ms": "150",
        "log.segment.delete.delay.ms": rng.choice(("0", "1000")),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(("800", "20971520")),
        "max.incremental.fetch.session.cache.slots": "2",
    }
    if world.producers_expire:
        settings |= {
            "producer.id.expiration.ms": str(world.producer_expiration_ms),
            "producer.id.expiration.check.interval.ms": "300",
        }
    if world.durable:
        settings["log.flush.interval.messages"] = "1"
    if world.is_transactional:
        settings |= {
            # The clock is put forward at the end, and offsets must not expire by that.
            "offsets.retention.minutes": "10080",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.segment.bytes": "1048576",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
            "producer.id.expiration.check.interval.ms": "300",
            **world.txn_shape.settings(),
        }
    apart = _cleaning_map(world.seed) | _metadata_retention(world.seed)
    return BrokerConfig(settings | world.tuning.settings() | apart)


def _cleaning_map(seed: int) -> dict[str, str]:
    """In some runs the map of a cleaning takes eight keys. Drawn apart, so that the others are as they were."""
    if Random(f"{seed}:cleaning map").random() >= _SMALL_MAP_SHARE:
        return {}
    return {"log.cleaner.dedupe.buffer.size": "1024", "log.cleaner.io.buffer.load.factor": "0.2"}


def _metadata_retention(seed: int) -> dict[str, str]:
    """In some runs little of the metadata log is kept. Drawn apart, so that the others are as they were."""
    rng = Random(f"{seed}:metadata retention")
    if rng.random() >= _TINY_METADATA_SHARE:
        return {}
    kept = rng.choice((("bytes", "1500"), ("bytes", "6000"), ("ms", "500")))
    return {
        "metadata.log.max.record.bytes.between.snapshots": "800",
        f"metadata.max.retention.{kept[0]}": kept[1],
        "internal.metadata.delete.delay.millis": rng.choice(("0", "1000")),
    }


def _segment_age(seed: int) -> dict[str, str]:
    """In some runs segments end by their age. Drawn apart, so that the others are as they were."""
    rng = Random(f"{seed}:segment.ms")
    return {"segment.ms": rng.choice(("300", "1500"))} if rng.random() < _AGING_SHARE else {}


def _odd_settings(world: "World", topic: str) -> dict[str, str]:
    """What a topic has of its own in some runs. Drawn apart, so that the others are as they were."""
    rng = Random(f"{world.seed}:settings of {topic}")
    settings: dict[str, str] = {}
    if rng.random() < _ODD_SHARE:
        settings["compression.type"] = rng.choice(("gzip", "lz4", "zstd", "snappy", "uncompressed"))
        world.count("compression.type of a topic")
    is_append_time = rng.random() < _ODD_SHARE
    if is_append_time and topic in ("log", "short"):
        settings["message.timestamp.type"] = "LogAppendTime"
        world.count("LogAppendTime")
    if rng.random() < _ODD_SHARE and not world.durable:
        settings["flush.messages"] = rng.choice(("1", "1", "3"))
        world.count("flush.messages of a topic")
    if rng.random() < _ODD_SHARE:
        settings["flush.ms"] = rng.choice(("50", "400"))
        world.count("flush.ms of a topic")
    return settings


def _message_bytes(seed: int, segment_bytes: str) -> dict[str, str]:
    """In some runs less fits into a batch than our own producer puts into some. Drawn apart, as the others are.

    Those of other producers are smaller, and no segment is.
    """
    rng = Random(f"{seed}:max.message.bytes")
    if int(segment_bytes) <= MESSAGE_BYTES or rng.random() >= _SMALL_SHARE:
        return {}
    return {"max.message.bytes": str(MESSAGE_BYTES)}


def draw_topics(world: "World", rng: Random) -> dict[str, tuple[int, dict[str, str]]]:
    tiny = {
        "internal.segment.bytes": rng.choice(("1200", "2500", "20000")),
        "index.interval.bytes": rng.choice(("0", "150", "4096")),
        "segment.index.bytes": rng.choice(("400", "4096")),
    }
    short = {"retention.bytes": rng.choice(("1500", "6000")), "retention.ms": rng.choice(("2000", "60000"))}
    keyed = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01" if world.theme == "compaction" else rng.choice(("0.01", "0.5")),
        "delete.retention.ms": rng.choice(("0", "500", "2000")),
        "min.compaction.lag.ms": "1000" if world.theme == "compaction" else rng.choice(("0", "0", "1500")),
        "max.compaction.lag.ms": rng.choice(("1500", "9223372036854775807")),
    }
    aging = _segment_age(world.seed)
    topics = {
        "log": (2, tiny | {"retention.ms": "-1"} | aging | _message_bytes(world.seed, tiny["internal.segment.bytes"])),
        "short": (1, tiny | short | aging),
        "keyed": (1, tiny | keyed),
    }
    if world.is_transactional:
        topics["txn"] = (2, tiny | {"retention.ms": "-1"})
        topics["txnkeyed"] = (1, tiny | keyed)
        topics |= own_copier.topics(world, tiny)
    if world.tuning.trims_transactions:
        topics[TRIMMED] = (1, tiny | short | {"internal.segment.bytes": "500"})
    return {
        name: (count, configs | _odd_settings(world, name) | world.lines.settings(name))
        for name, (count, configs) in topics.items()
    }
