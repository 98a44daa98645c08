"""D6, of the time index: who asks where a moment is in a log is told the first record at or after it.

Asked of every partition at the end, for some of the moments that records have. What is right is told by the records in
the files, read past the broker, and so past its indexes. Markers are records too, here as in Kafka. The latest moment
of all is asked for as well: the first record that has it, also one before the log's start if its file is there.
"""

from math import inf
from random import Random
from typing import NamedTuple

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.log import Log

ASKED_MAX = 3
MAX_TIMESTAMP = -3
NOT_FOUND = -1

Times = list[tuple[int, int]]
"""Offset and timestamp of each record, in the order of the log."""


class Answer(NamedTuple):
    """Where a client was told that a moment is, and where it was, by the records, before it asked and after."""

    moment: int
    found: int
    before: int
    after: int


class TimesAreFound(Checker):
    def moments(self, times: Times, place: Place) -> list[int]:
        """Those to ask for: some that a record has, and one that is past them all."""
        there = sorted({timestamp for _, timestamp in times})
        rng = Random(f"{self.world.seed}:moments:{place}")
        return [*rng.sample(there, min(ASKED_MAX, len(there))), there[-1] + 1] if there else []

    def times(self, log: Log) -> Times:
        return [each for each in self.all_times(log) if each[0] >= log.log_start]

    def all_times(self, log: Log) -> Times:
        """Of everything in the files."""
        found: Times = []
        for segment in log.segments:
            data = self.world.disk.peek(segment.log.path)[: segment.size]
            for batch in iterate_batches(data, 0, len(data)):
                found += [(record.offset, record.timestamp) for record in iterate_records(batch)]
        return found

    def at_end(self, broker: Broker) -> None:
        for place, answers in self.world.observer.times.items():
            for answer in answers:
                check(place, answer)
                self.world.count("moment looked up")


def first_at(times: Times, moment: int) -> int:
    """The first record at a moment or after, -1 where there is none."""
    return next((at for at, timestamp in times if timestamp >= moment), NOT_FOUND)


def latest(times: Times) -> int:
    """The first record with the latest moment of all, -1 where there is none."""
    return first_at(times, max((timestamp for _, timestamp in times), default=0))


def check(place: Place, answer: Answer) -> None:
    """Retention and compaction may take records meanwhile: then the first is further on."""
    if not _order(answer.before) <= _order(answer.found) <= _order(answer.after):
        raise Violation(
            "D6 a moment is found in the log",
            f"{place[0]}-{place[1]}: the first record from {answer.moment} on is at {answer.after}, and was at "
            f"{answer.before}; the answer was {answer.found}",
        )


def _order(offset: int) -> float:
    return inf if offset == NOT_FOUND else offset
