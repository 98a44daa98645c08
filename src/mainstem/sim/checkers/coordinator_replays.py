"""T10: a coordinator of transactions is what its log says, so that whoever takes over by replay knows the same.

After every step each transactional id that the coordinator knows is compared with the newest record of its log, as read
past the broker; but for a coordinator that is just collecting records, which it has taken in and not yet written. After
a restart it is the coordinator that has replayed which is compared.
"""

from mainstem.broker.app import Broker
from mainstem.core.txn.states import Transaction
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.sim.txn_logs import in_words
from mainstem.sim.written import STATE_TOPIC

Known = dict[str, Transaction]


class CoordinatorReplays(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._agreed: dict[int, tuple[Known, list[Transaction]]] = {}
        """What was compared last: the coordinator's dict, and the very objects that were in it."""
        self._changes = -1

    def after_step(self, broker: Broker) -> None:
        logs = self.world.txn_logs
        if logs.changes != self._changes:
            self._changes = logs.changes
            self._agreed.clear()
        for index, shard in broker.transactions.runtime.shards.items():
            if not shard.is_serving or shard._open is not None:
                continue
            live = shard.machine.store.all
            agreed = self._agreed.get(index)
            if agreed is not None and agreed[0] is live and _same(agreed[1], live):
                continue
            partition = broker.partitions.get(STATE_TOPIC, index)
            if partition is None or partition.log.failure is not None:
                continue  # a write may have failed with all its bytes written
            written = logs.states.get(index, {})
            if live != written:
                raise Violation("T10 a coordinator is what its log says", f"{partition}: {_difference(live, written)}")
            self._agreed[index] = (live, list(live.values()))
            self.world.count("coordinator compared with its log")


def _same(agreed: list[Transaction], live: Known) -> bool:
    return len(agreed) == len(live) and all(txn is agreed[at] for at, txn in enumerate(live.values()))


def _difference(live: Known, written: Known) -> str:
    for transactional_id in dict.fromkeys((*live, *written)):
        if live.get(transactional_id) != written.get(transactional_id):
            return f"it has {in_words(live.get(transactional_id))}; its log {in_words(written.get(transactional_id))}"
    return ""
