"""P1, the other side: what goes from the beginning of a log was due to go.

A log's start moves over a record only if somebody asked for its deletion, if the record is older than `retention.ms`,
or if the log still has `retention.bytes` without it and everything before it. Judged when the start moves, by the
batches as they were written and by the broker's clock then. A start may be found further back after a crash, because
it is written down now and then only; never further on. After a clean stop it is where it was.
"""

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.tuning import TRIMMED

PROMISE = "P1 what goes was due"


class WhatGoesIsDue(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._due: dict[tuple[bytes, int], int] = {}
        """Up to where each log may be gone."""
        self._asked: dict[Place, int] = {}
        self._starts: dict[tuple[bytes, int], int] = {}
        """Where each log was last seen to start, in this life of the broker."""
        self._stopped_at: dict[tuple[bytes, int], int] = {}
        """The same when the broker was stopped, if that is how its last life ended."""

    def asked(self, place: Place, offset: int) -> int:
        """Somebody asks for the deletion of everything before this offset; up to where others had before."""
        before = self._asked.get(place, 0)
        self._asked[place] = max(before, offset)
        return before

    def refused(self, place: Place, offset: int, before: int) -> None:
        """Nothing came of that, and nothing will, unless somebody has asked for as much since."""
        if self._asked[place] == offset:
            self._asked[place] = before

    def died(self, broker: Broker | None, how: str) -> None:
        if broker is not None:
            for partition in broker.partitions:
                self.moved(partition, partition.log.log_start)
        is_clean = how == "stopped" and broker is not None and not broker.partitions.dirs.any_offline
        # After a stop the broker has let go of its partitions: what counts is what was seen of them before.
        self._stopped_at = self._starts if is_clean else {}
        self._starts = {}

    def served(self, broker: Broker) -> None:
        for partition in broker.partitions:
            start = self._stopped_at.get((partition.topic_id, partition.index), 0)
            if start > 0 and (partition.topic, partition.index) not in self.world.ledger.damaged:
                if partition.log.log_start < start:
                    raise Violation(
                        "P1 what is deleted stays deleted",
                        f"{partition} started at {start} when it was stopped, and now at {partition.log.log_start}",
                    )
                self.world.count("start after a clean stop checked")
        self._stopped_at.clear()

    def forget(self) -> None:
        self._due.clear()
        self._starts.clear()
        self._stopped_at.clear()

    def moved(self, partition: Partition, start: int) -> None:
        """A log was seen to start here."""
        key = (partition.topic_id, partition.index)
        place = (partition.topic, partition.index)
        self._starts[key] = start
        written = self.world.written.find(place)
        due = self._due.get(key)
        if due is None:
            # Of another disk nobody knows what it had.
            due = self._due[key] = 0 if written is not None and written.is_known else start
        if start > due and place not in self.world.ledger.damaged:
            if start > self._asked.get(place, 0):
                self._check(partition, written.batches if written is not None else [], due, start)
                self.world.count("retention moved a start")
            if place[0] == TRIMMED:
                self.world.count("start of a log with transactions moved")
            self._due[key] = start

    def _check(self, partition: Partition, batches: list[BatchView], due: int, start: int) -> None:
        config = partition.log.config
        now_ms = self.world.process.clock.wall_ms()
        first = max(due, self._asked.get((partition.topic, partition.index), 0))
        is_mistimed = config.retention_ms >= 0 and (partition.topic, partition.index) in self.world.ledger.mistimed
        kept_bytes = 0
        for batch in reversed(batches):
            if batch.last_offset < first:
                return
            if batch.base_offset < start:
                is_old = 0 <= config.retention_ms < now_ms - batch.max_timestamp or is_mistimed
                is_over = 0 <= config.retention_bytes <= kept_bytes
                if not config.delete or not (is_old or is_over):
                    raise Violation(
                        PROMISE,
                        f"{partition} starts at {start}: the batch at {batch.base_offset} is "
                        f"{now_ms - batch.max_timestamp} ms old, with {kept_bytes} bytes behind it",
                    )
            kept_bytes += batch.size

    def at_end(self, broker: Broker) -> None:
        """What clients are told is no other start."""
        for place, (start, _, _) in self.world.observer.finals.items():
            partition = broker.partitions.get(*place)
            if partition is not None and place not in self.world.ledger.damaged:
                due = self._due.get((partition.topic_id, partition.index), 0)
                if start > due:
                    raise Violation(PROMISE, f"{place} is said to start at {start}; up to {due} it may")
