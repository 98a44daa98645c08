"""T11: epochs only rise; where they are used up the id of the producer is another, which nobody ever had.

Judged by each record that a coordinator writes, and by each id that an idempotent producer is given.
"""

from mainstem.core.txn.states import EMPTY, EPOCH_MAX, NO_ID, ONGOING, PREPARED, Transaction, is_exhausted
from mainstem.protocol.batch import BatchView
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_logs import in_words
from mainstem.sim.written import STATE_TOPIC


class ProducerIdsRotate(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._owners: dict[int, str] = {}

    def forget(self) -> None:
        self._owners.clear()

    def given(self, producer_id: int) -> None:
        """An idempotent producer has this id now."""
        self._own(producer_id, "an idempotent producer")

    def appended(self, place: Place, batch: BatchView) -> None:
        if place[0] != STATE_TOPIC:
            return
        states = dict(self.world.txn_logs.states.get(place[1], {}))
        for _, transactional_id, txn in self.world.txn_logs.read(batch):
            if txn is None:
                states.pop(transactional_id, None)
                continue
            self._check(states.get(transactional_id), txn)
            states[transactional_id] = txn

    def _check(self, before: Transaction | None, txn: Transaction) -> None:
        owner = f"the transactional id {txn.transactional_id}"
        for producer_id in (txn.producer_id, txn.next_producer_id):
            if producer_id != NO_ID:
                self._own(producer_id, owner)
        producer_id, epoch = _identity(txn)
        if not 0 <= txn.producer_epoch <= EPOCH_MAX or not 0 <= epoch <= EPOCH_MAX:
            raise Violation("T11 epochs only rise", f"an epoch that does not exist: {in_words(txn)}")
        if txn.state in (EMPTY, ONGOING) and txn.client_epoch > EPOCH_MAX - 1:
            raise Violation("T11 the highest epoch is for markers", f"a client has it: {in_words(txn)}")
        if before is None:
            return
        was_id, was_epoch = _identity(before)
        if producer_id == was_id:
            if epoch < was_epoch:
                raise Violation(
                    "T11 epochs only rise", f"{was_id} had epoch {was_epoch}, and has {epoch}: {in_words(txn)}"
                )
            return
        if epoch != 0 or not is_exhausted(was_epoch):
            raise Violation(
                "T11 an id is used up before the next",
                f"{was_id} epoch {was_epoch} is {producer_id} epoch {epoch}: {in_words(txn)}",
            )
        self.world.count("C6 producer id rotated")

    def _own(self, producer_id: int, owner: str) -> None:
        before = self._owners.setdefault(producer_id, owner)
        if before != owner:
            raise Violation("T11 producer ids are new", f"{producer_id} was given to {before} and to {owner}")


def _identity(txn: Transaction) -> tuple[int, int]:
    """Who the client is, or will be when this is complete."""
    return txn.identity_after() if txn.state in PREPARED else (txn.client_id, txn.client_epoch)
