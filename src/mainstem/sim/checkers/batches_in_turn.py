"""T2: the batches of a partition are appended in the order in which they came, also where a thread has to judge some.

Looked at where batches wait for each other (`lines`): what waits keeps its order, and while one waits nothing is
appended that came after it. A marker may be: it is no client's, and waits for nobody.
"""

from typing import TYPE_CHECKING

from mainstem.broker.app import Broker
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation

if TYPE_CHECKING:
    from mainstem.broker.partition import _Waiting
    from mainstem.sim.world import World


class BatchesInTurn(Checker):
    def __init__(self, world: "World", place: Place) -> None:
        super().__init__(world)
        self._place = place
        self._line: list[_Waiting] = []
        """Who waited after the last step, and has not been appended since."""
        self._judged: _Waiting | None = None
        """The last that was seen to be judged in a thread."""

    def appended(self, place: Place, batch: BatchView) -> None:
        line = self._line
        broker = self.world.process.broker
        if place != self._place or not line or broker is None or batch.is_control:
            return
        name = _identity(batch)
        at = next((at for at, each in enumerate(line) if _name(each) == name), len(line))
        partition = broker.partitions.get(place[0], place[1])
        waiting = [] if partition is None else list(partition.waiting)
        # Those before it may have been refused in the same step, or have been there before.
        if any(each is other for each in line[:at] for other in waiting):
            raise Violation(
                "T2 batches are appended in turn",
                f"{place[0]}-{place[1]}: {name} is at {batch.base_offset}, and {_name(line[0])} came before it and "
                "waits",
            )
        del line[: at + 1]

    def after_step(self, broker: Broker) -> None:
        partition = broker.partitions.get(self._place[0], self._place[1])
        if partition is None or not partition.waiting:
            if self._line:
                self._line = []
            return
        waiting = list(partition.waiting)
        left = [each for each in self._line if any(each is other for other in waiting)]
        if left and any(each is not other for each, other in zip(left, waiting, strict=False)):
            raise Violation(
                "T2 batches are appended in turn",
                f"{partition}: {_name(left[0])} was the first that waited, and is behind {_name(waiting[0])}",
            )
        self._count(waiting)
        self._line = waiting

    def _count(self, waiting: "list[_Waiting]") -> None:
        if waiting[0].prepared is not None and waiting[0] is not self._judged:
            self._judged = waiting[0]
            self.world.count("batch judged in a thread")
        if len(waiting) > max(len(self._line), 1):
            self.world.count("batch waited its turn")
            if len(waiting) > 2:
                self.world.count("line of three batches")

    def died(self, broker: Broker | None, how: str) -> None:
        self._line = []


def _name(each: "_Waiting") -> tuple[int, int, int, int]:
    return _identity(BatchView(each.buffer, each.start))


def _identity(batch: BatchView) -> tuple[int, int, int, int]:
    """What of a batch is the same when it is stored with another codec."""
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count
