"""The client: a producer, a consumer and an admin for Mainstem and for Kafka, on asyncio, each with a synchronous face.

Public names are here, each imported when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "AsyncAdmin": "admin",
    "SomeFailedError": "admin_base",
    "ConfigChange": "admin_configs",
    "ConfigResource": "admin_configs",
    "ResourceType": "admin_configs",
    "NewTopic": "admin_topics",
    "OffsetSpec": "admin_records",
    "CommonOptions": "options",
    "ConsumerOptions": "options",
    "ProducerOptions": "options",
    "AdminOptions": "options",
    "ConsumerRecord": "types",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "RecordMetadata": "types",
    "TopicPartition": "types",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
}
"""In which module of this package each public name is."""

__all__ = [
    "AdminOptions",
    "AsyncAdmin",
    "CommonOptions",
    "ConfigChange",
    "ConfigResource",
    "ConsumerOptions",
    "ConsumerRecord",
    "KafkaError",
    "KafkaTimeoutError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "ProducerOptions",
    "RecordMetadata",
    "ResourceType",
    "SomeFailedError",
    "TopicPartition",
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
