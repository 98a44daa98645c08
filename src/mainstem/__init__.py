"""Mainstem: a distributed, replicated commit log that speaks Kafka's protocol.

The client's names (`Producer`, `Consumer`, `Admin`, their `Async` twins, the values they deal in) are names of this
package, too. They are imported when first used: a broker never loads a client.
"""

from typing import TYPE_CHECKING, Any

from mainstem._version import VERSION

if TYPE_CHECKING:
    from mainstem.client import (
        Admin,
        AdminOptions,
        AsyncAdmin,
        AsyncConsumer,
        AsyncProducer,
        CommonOptions,
        ConfigChange,
        ConfigOperation,
        ConfigResource,
        Consumer,
        ConsumerOptions,
        ConsumerRecord,
        KafkaError,
        KafkaTimeoutError,
        NewTopic,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetSpec,
        Producer,
        ProducerOptions,
        RebalanceListener,
        RecordMetadata,
        ResourceType,
        SendFuture,
        TopicPartition,
        read_topic,
    )

__version__ = VERSION

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
    "__version__",
    "read_topic",
]


def __getattr__(name: str) -> Any:
    # Asked for a submodule that is not there yet, `mainstem.client` must not be asked in turn: it may be that one.
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mainstem import client

    value = getattr(client, name)
    globals()[name] = value
    return value
