"""P1: who is told that a batch is there, with `acks=all`, is told so when it is below the high watermark.

With `flush.messages=1` the high watermark is what is durable, so this is also what keeps an acknowledgement from coming
before its sync; one of `acks=1`, too, of which no more is asked elsewhere. It is looked at when the answer arrives, in
the same life of the broker: a high watermark only rises, so what it has not passed then it had not passed when the
answer was given. The same goes for who is told that records are deleted.
"""

from mainstem.broker.partition import Partition
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation


class AcknowledgedIsCommitted(Checker):
    def acked(self, place: Place, offset: int, life: int) -> None:
        partition = self._partition(place, life)
        if partition is None:
            return
        if offset >= partition.high_watermark:
            raise Violation(
                "P1 what is acknowledged is committed",
                f"a client is told that its record is at {offset} of {partition}, whose high watermark is "
                f"{partition.high_watermark}",
            )
        self.world.count("acknowledgement looked at")

    def deleted(self, place: Place, offset: int, life: int) -> None:
        """A client is told that everything before this offset is gone."""
        partition = self._partition(place, life)
        if partition is not None and offset > partition.high_watermark:
            raise Violation(
                "P1 only what is committed is deleted",
                f"a client is told that {partition} begins at {offset}, and its high watermark is "
                f"{partition.high_watermark}",
            )

    def _partition(self, place: Place, life: int) -> Partition | None:
        """Where something can be said of it: in this life of the broker."""
        broker = self.world.process.broker
        if broker is None or life != self.world.process.life or place in self.world.ledger.damaged:
            return None
        return broker.partitions.get(*place)
