"""What a consumer reads and how far it is: the topics it wants, the partitions it has, the position of each.

A partition is read in the order in which it was assigned, fetched, and taken. Three offsets never go back unless
someone seeks: `position` is what the next record given out will be at or after, `fetch_offset` what the next fetch
asks for, and what lies between them is in memory.

A position has to be sound before anything is fetched from it: it is found first (a committed offset, or a reset), and
checked whenever the partition has a new leader (KIP-320), for that leader may not have what was read from the last one.

`version` counts how often a partition was moved; what was fetched for an earlier version is thrown away. Counters of
bytes are written by one side each, so that records may be taken by another thread than the one that fetches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from mainstem.client.errors import IllegalStateError
from mainstem.client.types import TopicPartition

NO_EPOCH: Final = -1


class Mode(Enum):
    NOTHING = 0
    TOPICS = 1
    PATTERN = 2
    ASSIGNED = 3


class PartitionState:
    """One partition that is being read."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "checked_epoch",
        "fetch_offset",
        "high_watermark",
        "is_failed",
        "is_going",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "needs_check",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until",
        "reset",
        "retry_at",
        "tp",
        "version",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position: int | None = None
        self.position_epoch = NO_EPOCH
        """The leader epoch of the record before the position, as far as it is known."""
        self.fetch_offset = -1
        self.version = 0
        self.reset: str | None = None
        """How to find a position: as in `auto_offset_reset`."""
        self.needs_check = False
        self.checked_epoch = NO_EPOCH
        """The epoch of the leader by whom the position was found or checked."""
        self.is_paused = False
        self.is_going = False
        """About to be revoked: nothing more is fetched or given out."""
        self.is_failed = False
        """Something that a caller of `poll` must hear of is queued: no fetch until it has been."""
        self.retry_at = 0.0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_replica = -1
        self.preferred_until = 0.0
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def buffered_bytes(self) -> int:
        return self.bytes_in - self.bytes_out

    @property
    def is_fetchable(self) -> bool:
        return (
            self.position is not None
            and self.reset is None
            and not self.needs_check
            and not self.is_paused
            and not self.is_going
            and not self.is_failed
        )

    def move(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Sets the position; what was fetched before is of no use any more."""
        self.drop_fetched()
        self.reset = None
        self.position = offset
        self.position_epoch = epoch
        self.fetch_offset = offset
        self.needs_check = False
        self.checked_epoch = NO_EPOCH
        self.preferred_replica = -1

    def ask_reset(self, strategy: str) -> None:
        self.drop_fetched()
        self.reset = strategy
        self.needs_check = False
        self.retry_at = 0.0

    def drop_fetched(self) -> None:
        self.version += 1
        self.bytes_out = self.bytes_in
        self.is_failed = False
        if self.position is not None:
            self.fetch_offset = self.position

    def lead_by(self, epoch: int) -> None:
        """The leader has this epoch now: a position that was read under another has to be checked."""
        if epoch != self.checked_epoch and epoch != NO_EPOCH and self.position is not None:
            if self.position_epoch != NO_EPOCH and self.reset is None:
                self.needs_check = True
            else:
                self.checked_epoch = epoch


class Subscription:
    """The topics that are wanted, and the partitions that are had."""

    def __init__(self) -> None:
        self.mode = Mode.NOTHING
        self.topics: frozenset[str] = frozenset()
        """Those that are wanted now; with a pattern, those that match it."""
        self.pattern: re.Pattern[str] | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.on_change: Callable[[], None] = lambda: None

    @property
    def is_by_group(self) -> bool:
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def subscribe(self, topics: Iterable[str]) -> None:
        self._enter(Mode.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._enter(Mode.PATTERN)
        self.pattern = pattern
        self.topics = frozenset()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._enter(Mode.ASSIGNED)
        self.replace(partitions)
        self.topics = frozenset(tp.topic for tp in self.partitions)

    def unsubscribe(self) -> None:
        self.mode = Mode.NOTHING
        self.topics = frozenset()
        self.pattern = None
        self.replace(())

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NOTHING, mode):
            raise IllegalStateError(
                "subscribing to topics, to a pattern, and assigning partitions exclude each other; unsubscribe first"
            )
        self.mode = mode

    def matches(self, topic: str) -> bool:
        if self.mode is Mode.PATTERN:
            assert self.pattern is not None
            return self.pattern.match(topic) is not None
        return topic in self.topics

    def match_topics(self, existing: Iterable[str]) -> bool:
        """With a pattern: the topics that are there now; whether that is news."""
        found = frozenset(topic for topic in existing if self.matches(topic))
        is_news = found != self.topics
        self.topics = found
        return is_news

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Has exactly these; those that stay keep their positions and what was fetched."""
        wanted = dict.fromkeys(partitions)
        for tp, state in self.partitions.items():
            if tp not in wanted:
                state.drop_fetched()
                state.is_going = True
        self.partitions = {tp: self.partitions.get(tp) or PartitionState(tp) for tp in wanted}
        self.on_change()

    def state(self, tp: TopicPartition) -> PartitionState:
        found = self.partitions.get(tp)
        if found is None:
            raise IllegalStateError(
                "this partition is not assigned to this consumer", topic=tp.topic, partition=tp.partition
            )
        return found
