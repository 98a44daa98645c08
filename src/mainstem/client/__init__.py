"""The client: a producer, a consumer and an admin for Mainstem and for Kafka, on asyncio, each with a synchronous face.

Public names are here, each imported when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mainstem.client.admin import AsyncAdmin
    from mainstem.client.admin_types import (
        ConfigChange,
        ConfigOperation,
        ConfigResource,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )
    from mainstem.client.arrow_read import read_topic
    from mainstem.client.batches import SendFuture
    from mainstem.client.consumer import AsyncConsumer
    from mainstem.client.consumer_sync import Consumer
    from mainstem.client.errors import KafkaError, KafkaTimeoutError
    from mainstem.client.listeners import RebalanceListener
    from mainstem.client.options import AdminOptions, CommonOptions, ConsumerOptions, ProducerOptions
    from mainstem.client.producer import AsyncProducer
    from mainstem.client.sync_admin import Admin
    from mainstem.client.sync_producer import Producer
    from mainstem.client.types import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

_HOMES: Final = {
    "Admin": "sync_admin",
    "AdminOptions": "options",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "CommonOptions": "options",
    "ConfigChange": "admin_types",
    "ConfigOperation": "admin_types",
    "ConfigResource": "admin_types",
    "Consumer": "consumer_sync",
    "ConsumerOptions": "options",
    "ConsumerRecord": "types",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
    "NewTopic": "admin_types",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "OffsetSpec": "admin_types",
    "Producer": "sync_producer",
    "ProducerOptions": "options",
    "RebalanceListener": "listeners",
    "RecordMetadata": "types",
    "ResourceType": "admin_types",
    "SendFuture": "batches",
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
