"""What a group coordinator must not lose, as its log tells it.

Rules:
- State changes only in `replay` and `replay_marker`, and is the newest value of each key: nothing here depends on a
  record that compaction may have removed, or on the order of different keys. A tombstone for what is not there does
  nothing (G6, KAFKA-17306).
- An offset committed in a transaction is staged until the transaction ends. When it commits, the later record in the
  log wins, be it the staged one or a plain commit made meanwhile (Redpanda #31483). A tombstone takes both.
- Groups of other protocols (KIP-848, share, streams), as Kafka may have written them, are kept as they are by key.
- `keep` and `revert` bracket records that were replayed before they were written: `revert` takes back what was
  replayed since.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from mainstem.core.coordinator.effects import UnknownRecordError
from mainstem.core.group.records import read_offset_key, read_offset_value
from mainstem.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.schema import Message

TopicPartition = tuple[str, int]

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
CLASSIC: Final = "classic"
_KEY_TYPES: Final = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), CONSUMER),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), SHARE),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), STREAMS),
}
NO_PRODUCER: Final = -1
OFFSET_PREFIX: Final = OffsetCommitKey.API_KEY.to_bytes(2, "big")


class CommittedOffset:
    """A position a group committed in one partition."""

    __slots__ = ("commit_ms", "expire_ms", "leader_epoch", "metadata", "offset", "replayed_as", "topic_id")

    def __init__(self, value: OffsetCommitValue, replayed_as: int) -> None:
        self.offset = value.offset
        self.leader_epoch = value.leader_epoch
        self.metadata = value.metadata
        self.commit_ms = value.commit_timestamp
        self.expire_ms = value.expire_timestamp
        self.topic_id = value.topic_id
        self.replayed_as = replayed_as
        """The place of its record in the log, as a count: tells which of two is the later."""

    def __repr__(self) -> str:
        return f"CommittedOffset({self.offset}, epoch={self.leader_epoch}, {self.metadata!r}, at={self.commit_ms})"

    def value(self) -> tuple[int, int, str, int, int, bytes]:
        return self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms, self.topic_id


class GroupStore:
    __slots__ = ("_journal", "_replayed", "metadata", "offsets", "others", "staged", "stagers")

    def __init__(self) -> None:
        self.metadata: dict[str, GroupMetadataValue] = {}
        """Classic groups."""
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.others: dict[str, dict[bytes, bytes]] = {}
        """Records of other protocols, by group and by the bytes of their keys."""
        self.staged: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        """Offsets of open transactions, by producer id."""
        self.stagers: dict[str, dict[TopicPartition, dict[int, bool]]] = {}
        """The same from the other side: who has staged an offset, by group and by partition."""
        self._journal: list[Callable[[], None]] = []
        """How to take back what was replayed since `keep`."""
        self._replayed = 0

    # Reading

    def offsets_of(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self.offsets.get(group, {})

    def holds(self, group: str) -> bool:
        """Whether the log tells of a classic group, if only by its offsets."""
        is_told_of = group in self.metadata or group in self.offsets or group in self.stagers
        return is_told_of and group not in self.others

    def other_type(self, group: str) -> str | None:
        """The protocol of a group that is not a classic one."""
        records = self.others.get(group)
        if not records:
            return None
        return _KEY_TYPES[int.from_bytes(next(iter(records))[:2], "big")]

    def has_staged(self, group: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self.stagers.get(group, {})

    def has_any_staged(self, group: str) -> bool:
        return group in self.stagers

    # Replaying

    def replay(self, raw_key: bytes, raw_value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Takes one record; UnknownRecordError for a type of a later version, RemoteError for one that is broken."""
        self._replayed += 1
        if raw_key[:2] == OFFSET_PREFIX:
            place = read_offset_key(raw_key)
            self._replay_offset(place, None if raw_value is None else read_offset_value(raw_value), producer_id)
            return
        if int.from_bytes(raw_key[:2], "big", signed=True) not in GROUP_RECORDS.keys:
            raise UnknownRecordError(f"a group's record of the type {raw_key[:2].hex()}")
        key, value = GROUP_RECORDS.decode(raw_key, raw_value)
        match key:
            case LegacyOffsetCommitKey():
                legacy = None if value is None else _as_current(value)
                self._replay_offset((key.group, key.topic, key.partition), legacy, producer_id)
            case GroupMetadataKey():
                assert value is None or isinstance(value, GroupMetadataValue)
                self._journal.append(partial(_put, self.metadata, key.group, self.metadata.get(key.group)))
                _put(self.metadata, key.group, value)
            case _:
                group: str = key.group_id  # type: ignore[attr-defined]
                self._set_other(group, raw_key, raw_value)

    def _replay_offset(self, place: tuple[str, str, int], value: OffsetCommitValue | None, producer_id: int) -> None:
        if value is None:
            self._forget_staged(place)
            self._set_offset(place, None)
        elif producer_id == NO_PRODUCER:
            self._set_offset(place, CommittedOffset(value, self._replayed))
        else:
            self._set_staged(producer_id, place, CommittedOffset(value, self._replayed))

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        staged = self.staged.get(producer_id)
        if staged is None:
            return
        for place, offset in list(staged.items()):
            self._set_staged(producer_id, place, None)
            if committed:
                current = self.offsets_of(place[0]).get(place[1:])
                if current is None or current.replayed_as < offset.replayed_as:
                    self._set_offset(place, offset)

    def keep(self) -> None:
        self._journal.clear()

    def when_reverted(self, undo: Callable[[], None]) -> None:
        """Has `undo` called if what is replayed next is taken back."""
        self._journal.append(undo)

    def revert(self) -> None:
        while self._journal:
            self._journal.pop()()

    def _set_offset(self, place: tuple[str, str, int], value: CommittedOffset | None) -> None:
        self._journal.append(partial(self._put_offset, place, self.offsets_of(place[0]).get(place[1:])))
        self._put_offset(place, value)

    def _put_offset(self, place: tuple[str, str, int], value: CommittedOffset | None) -> None:
        _put_within(self.offsets, place[0], place[1:], value)

    def _set_other(self, group: str, raw_key: bytes, value: bytes | None) -> None:
        self._journal.append(partial(self._put_other, group, raw_key, self.others.get(group, {}).get(raw_key)))
        self._put_other(group, raw_key, value)

    def _put_other(self, group: str, raw_key: bytes, value: bytes | None) -> None:
        _put_within(self.others, group, raw_key, value)

    def _forget_staged(self, place: tuple[str, str, int]) -> None:
        for producer_id in list(self.stagers.get(place[0], {}).get(place[1:], ())):
            self._set_staged(producer_id, place, None)

    def _set_staged(self, producer_id: int, place: tuple[str, str, int], value: CommittedOffset | None) -> None:
        self._journal.append(partial(self._put_staged, producer_id, place, self.staged.get(producer_id, {}).get(place)))
        self._put_staged(producer_id, place, value)

    def _put_staged(self, producer_id: int, place: tuple[str, str, int], value: CommittedOffset | None) -> None:
        _put_within(self.staged, producer_id, place, value)
        group, partition = place[0], place[1:]
        stagers = self.stagers.get(group, {}).get(partition, {})
        _put(stagers, producer_id, None if value is None else True)
        _put_within(self.stagers, group, partition, stagers or None)


_K = TypeVar("_K")
_V = TypeVar("_V")
_O = TypeVar("_O")


def _put(mapping: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _put_within(mapping: dict[_O, dict[_K, _V]], outer: _O, key: _K, value: _V | None) -> None:
    inner = mapping.get(outer)
    if value is not None:
        if inner is None:
            inner = mapping[outer] = {}
        inner[key] = value
    elif inner is not None:
        inner.pop(key, None)
        if not inner:
            del mapping[outer]


def _as_current(value: Message) -> OffsetCommitValue:
    assert isinstance(value, LegacyOffsetCommitValue)
    return OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)
