"""T11: a producer id is given out once, ever."""

from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class ProducerIdsAreNew(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._given: set[tuple[int, int]] = set()

    def forget(self) -> None:
        self._given.clear()

    def given(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) in self._given:
            raise Violation("T11 producer ids are new", f"{producer_id} with epoch {epoch} was given out twice")
        self._given.add((producer_id, epoch))
