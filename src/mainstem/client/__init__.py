"""The client: a producer, a consumer and an admin for Mainstem and for Kafka, on asyncio, each with a synchronous face.

Public names are here, each imported when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "Admin": "sync_admin",
    "AdminOptions": "options",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "CommonOptions": "options",
    "ConfigChange": "admin_configs",
    "ConfigOperation": "admin_configs",
    "ConfigResource": "admin_configs",
    "Consumer": "consumer_sync",
    "ConsumerOptions": "options",
    "ConsumerRecord": "types",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
    "NewTopic": "admin_topics",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "OffsetSpec": "admin_records",
    "Producer": "sync_producer",
    "ProducerOptions": "options",
    "RebalanceListener": "listeners",
    "RecordMetadata": "types",
    "ResourceType": "admin_configs",
    "SendFuture": "batches",
    "SomeFailedError": "admin_base",
    "TopicPartition": "types",
    "read_topic": "arrow_read",
}
"""In which module of this package each public name is."""

__all__ = [
    "Admin",
    "AdminOptions",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "CommonOptions",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "Consumer",
    "ConsumerOptions",
    "ConsumerRecord",
    "KafkaError",
    "KafkaTimeoutError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Producer",
    "ProducerOptions",
    "RebalanceListener",
    "RecordMetadata",
    "ResourceType",
    "SendFuture",
    "SomeFailedError",
    "TopicPartition",
    "read_topic",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
