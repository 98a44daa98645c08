"""The values that people give to a client and get from it.

Plain, comparable and cheap: a `ConsumerRecord` is made for every record that is read, so it is a compiled class with
slots; the others are tuples with names.
"""

from typing import Any, Final, NamedTuple

from mypy_extensions import i64, mypyc_attr

NO_TIMESTAMP: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = list[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and a note that is kept with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record that was sent went. The offset is -1 with `acks=0`, where nobody says."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int = CREATE_TIME


# Out of the collector's sight, which would look at every one of them again and again: nothing refers back to a record.
@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """One record as it was read. `key` and `value` are bytes, or what the deserializers made of them."""

    __slots__ = (
        "_headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: i64,
        offset: i64,
        timestamp: i64,
        timestamp_type: i64,
        key: Any,
        value: Any,
        headers: Headers | None,
        leader_epoch: i64 = -1,
    ) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp
        self.timestamp_type: i64 = timestamp_type
        self.key = key
        self.value = value
        self._headers = headers
        self.leader_epoch: i64 = leader_epoch

    @property
    def headers(self) -> Headers:
        """Name and value of each, in order; most records have none, and are made without a list for them."""
        if self._headers is None:
            self._headers = []
        return self._headers

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )
