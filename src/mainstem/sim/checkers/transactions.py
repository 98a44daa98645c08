"""T5, T7, T9, T12: every transaction is all there or not at all, and ends.

At the end, by what a reader of committed records can see: what was acknowledged as committed is there, each value once;
what nobody asked to commit is not; of the rest all or nothing. A group's position is that of the last transaction that
is there. What a reader saw before is there still. No partition has an open transaction that nobody would end.

C4, in the files themselves: after every batch of a transaction comes a marker of its producer, of the right kind.
"""

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_ledger import Txn
from mainstem.sim.txn_workload import PLACES
from mainstem.storage.checkpoint import read_file


class TransactionsHold(Checker):
    def at_end(self, broker: Broker) -> None:
        world = self.world
        if not world.is_transactional or not world.txns.is_sure:
            return
        seen: dict[bytes, int] = {}
        for place, values in world.txn_finals.items():
            for value in values:
                if value in world.txns.by_value:
                    if value in seen and not world.is_keyed(place[0]):
                        raise Violation("duplicate", f"{place} has {value!r} twice")
                    seen[value] = 1
        last_offsets: dict[str, int] = {}
        for txn in world.txns.txns:
            if self._is_there(txn, seen) and txn.offset is not None:
                last_offsets[txn.group] = txn.offset
        for value in world.txns.read:
            if value not in seen and not world.is_keyed(world.txns.by_value[value].values[value][0]):
                raise Violation("T5 what was read is there", f"{value!r} was read as committed and is not there")
        self._check_offsets(last_offsets)
        for place in PLACES:
            self._check_markers(broker, place)

    def _check_markers(self, broker: Broker, place: Place) -> None:
        """A marker outlives the data of its transaction: whoever reads the log from its start must find it."""
        log = broker.partitions.find(*place).log
        disk = self.world.disk
        waiting: dict[int, list[bytes]] = {}
        for name in sorted(one for one in disk.list_directory(log.directory) if one.endswith(".log")):
            data = read_file(disk, f"{log.directory}/{name}")
            for batch in iterate_batches(data, 0, len(data)):
                if batch.is_control and batch.record_count:
                    marker = parse_end_marker(batch)
                    values = waiting.pop(batch.producer_id, [])
                    if marker is not None and marker.commit:
                        self._check_committed(place, values)
                elif batch.is_transactional and not batch.is_control:
                    values = [record.value for record in iterate_records(batch) if record.value is not None]
                    if values:
                        waiting.setdefault(batch.producer_id, []).extend(values)
        if waiting:
            raise Violation("C4 a marker outlives its data", f"{place}: no marker ends {next(iter(waiting.values()))}")

    def _check_committed(self, place: Place, values: list[bytes]) -> None:
        for value in values:
            txn = self.world.txns.by_value[value]
            if not txn.commit_sent:
                raise Violation(
                    "C4 a marker outlives its data", f"{place}: a commit follows {value!r}, which nobody asked for"
                )

    def _is_there(self, txn: Txn, seen: dict[bytes, int]) -> bool:
        """Compaction may have taken records of compacted topics: only those of others tell."""
        telling = [value for value, place in txn.values.items() if not self.world.is_keyed(place[0])]
        there = [value for value in telling if value in seen]
        extra = [value for value in txn.values if value in seen]
        if extra and not txn.commit_sent:
            raise Violation("G1a", f"transaction {txn.number} was never committed, and {extra[0]!r} can be read")
        if txn.is_committed and len(there) < len(telling):
            missing = [value for value in telling if value not in seen]
            raise Violation("T5 a transaction is whole", f"{txn.number} was committed, {missing} is missing")
        if there and len(there) < len(telling):
            raise Violation(
                "T5 a transaction is whole", f"of transaction {txn.number}, {there} can be read and the rest not"
            )
        if txn.is_committed or there:
            self.world.count("transaction checked")
            return True
        return bool(extra)

    def _check_offsets(self, last_offsets: dict[str, int]) -> None:
        """T9. A transaction of which nothing tells may have been committed: its offset is as good as the last."""
        for group, found in self.world.txn_offsets.items():
            unknown = [
                txn.offset
                for txn in self.world.txns.txns
                if txn.group == group and txn.offset is not None and txn.commit_sent and not txn.is_committed
            ]
            expected = last_offsets.get(group, -1)
            allowed = [expected, *(offset for offset in unknown if offset is not None and offset > expected)]
            if found not in allowed:
                raise Violation("T9 offsets are part of the transaction", f"{group} is at {found}, not at {allowed}")
            self.world.count("transactional offset checked")
