"""The client: a producer, a consumer and an admin for Mainstem and for Kafka, on asyncio, each with a synchronous face.

Public names are here, each imported when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "CommonOptions": "options",
    "ConsumerOptions": "options",
    "ProducerOptions": "options",
    "AdminOptions": "options",
    "ConsumerRecord": "types",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "RecordMetadata": "types",
    "TopicPartition": "types",
    "AsyncConsumer": "consumer",
    "Consumer": "consumer_sync",
    "RebalanceListener": "listeners",
    "read_topic": "arrow_read",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
}
"""In which module of this package each public name is."""

__all__ = [
    "AdminOptions",
    "AsyncConsumer",
    "CommonOptions",
    "Consumer",
    "ConsumerOptions",
    "ConsumerRecord",
    "KafkaError",
    "KafkaTimeoutError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ProducerOptions",
    "RebalanceListener",
    "RecordMetadata",
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
