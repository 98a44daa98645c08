"""T6: the last stable offset is the high watermark, or where the first transaction begins that is open or whose marker
is at or past the high watermark.

Looked at after every step that moved the log of a partition that has such a transaction, and on all partitions after
every step that wrote something of a transaction. Which are open is told by the batches in the files.

A start may find the high watermark before the end of the log. Of transactions that had ended before the start, with a
marker past the high watermark, the broker knows only those that are not in its snapshot of producers: until the high
watermark has passed them they may count or not. So may one that was open then and has all that it wrote before the
start of the log: a log that came back empty, because it was cut before its start, knows nothing of it. The snapshots of
another disk may tell of one that is in no file that was ever read here, for the same reason.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import OnPartition


class StableOffset(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._changes = -1
        self._unsettled: dict[Place, OnPartition] = {}

    def after_step(self, broker: Broker) -> None:
        logs = self.world.txn_logs
        if logs.changes != self._changes:
            self._changes = logs.changes
            self._unsettled = dict(logs.partitions)
            for place in list(self._unsettled):
                self._look(broker, place)
        elif self._unsettled:
            for partition in self.world.log_order.moved:
                self._look(broker, (partition.topic, partition.index))

    def _look(self, broker: Broker, place: Place) -> None:
        transactions = self._unsettled.get(place)
        if transactions is not None:
            self._check(broker, place, transactions)
            if not transactions.open and not transactions.ended and not transactions.ended_before:
                del self._unsettled[place]

    def _check(self, broker: Broker, place: Place, transactions: OnPartition) -> None:
        partition = broker.partitions.by_place.get(place)
        if partition is None or partition.log.failure is not None or place in self.world.ledger.damaged:
            return
        log = partition.log
        high = log.high_watermark
        ended, ended_before = transactions.ended, transactions.ended_before
        for each in (ended, ended_before):
            if each:
                for first in [first for first, marker in each.items() if marker < high]:
                    del each[first]
        before = transactions.open_before
        deleted = [first for owner, first in transactions.open.items() if before.get(owner) == first < log.log_start]
        unstable = [*(first for first in transactions.open.values() if first not in deleted), *ended]
        expected = _stable(unstable, log.log_start, high)
        lowest = expected
        if ended_before:
            self.world.count("high watermark before an ended transaction")
        if self.world.txn_logs.is_of_another_disk:
            for producer_id in log.producers.states.open_producers():
                producer = log.producers.states.get(producer_id)
                if producer is None or producer_id in transactions.open:
                    continue
                if producer.txn_first_offset < log.log_start:
                    deleted.append(producer.txn_first_offset)
            # The marker of such a one may be past the high watermark.
            first = log.producers.states.first_unstable_offset
            if 0 <= first < log.log_start:
                deleted.append(first)
        if ended_before or deleted:
            lowest = _stable([*unstable, *ended_before, *deleted], log.log_start, high)
        if not lowest <= log.last_stable_offset <= expected:
            raise Violation(
                "T6 the last stable offset is right",
                f"{partition}: it is {log.last_stable_offset}, not {expected}; the high watermark is {high}, "
                f"open are {transactions.open}, ended past it {ended}, before the start {ended_before}",
            )


def _stable(unstable: list[int], log_start: int, high: int) -> int:
    return min(high, max(min(unstable), log_start)) if unstable else high
