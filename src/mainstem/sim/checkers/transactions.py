"""T5, T7, T9, T12: every transaction is all there or not at all, and ends. Always; but for those that a power loss may
have torn, which the ledger knows one by one.

- What the markers in the files say is what a reader of committed records is given, up to the last stable offset (T6):
  this holds of torn ones, too.
- What was acknowledged as committed is there, each value once; what nobody asked to commit is not (`G1a`); of the rest
  all or nothing. What a reader saw before is there still.
- A group's position is that of the last transaction that is there.
- C4, in the files themselves: after every batch of a transaction comes a marker of its producer, of the right kind.
- `G1c`: no transactions have read from each other in a circle. `precommitted-read`: none has read its own.
"""

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.txn_ledger import Txn

Values = dict[int, bytes]
"""By offset."""


class TransactionsHold(Checker):
    def at_end(self, broker: Broker) -> None:
        world = self.world
        if not world.is_transactional:
            return
        seen: dict[bytes, None] = {}
        for place in dict.fromkeys(world.txn_places):
            committed = self._committed(broker, place)
            self._check_reader(place, committed)
            for value in committed.values():
                if value in seen and not world.is_keyed(place[0]):
                    raise Violation("duplicate", f"{place} has {value!r} twice")
                seen[value] = None
        last_offsets: dict[str, int] = {}
        for txn in world.txns.txns:
            if not txn.is_torn and self._is_there(txn, seen) and txn.offset is not None:
                last_offsets[txn.group] = txn.offset
        for value in world.txns.read:
            txn = world.txns.by_value[value]
            if value not in seen and not self._may_lose(txn.values[value][0]) and not txn.is_torn:
                raise Violation("T5 what was read is there", f"{value!r} was read as committed and is not there")
        if not (world.tuning.shares_groups or world.tuning.expires_offsets):
            self._check_offsets(last_offsets)  # elsewhere `offsets_follow` tells
        self._check_circles()

    def _committed(self, broker: Broker, place: Place) -> Values:
        """What is committed by the files. A marker outlives the data of its transaction: whoever reads must find it."""
        try:
            log = broker.partitions.find(*place).log
        except RemoteError as error:  # none of these is ever damaged
            raise Violation("T5 what is committed can be read", f"{place}: {error}") from None
        waiting: dict[int, Values] = {}
        committed: Values = {}
        for segment in log.segments:
            data = self.world.disk.peek(segment.log.path)[: segment.size]
            for batch in iterate_batches(data, 0, len(data)):
                if batch.is_control and batch.record_count:
                    marker = parse_end_marker(batch)
                    values = waiting.pop(batch.producer_id, {})
                    if marker is not None and marker.commit:
                        self._check_asked_for(place, batch.producer_id, values)
                        committed |= values
                elif batch.is_transactional and not batch.is_control:
                    held = {each.offset: each.value for each in iterate_records(batch) if each.value is not None}
                    if held:
                        waiting.setdefault(batch.producer_id, {}).update(held)
        for producer_id, values in waiting.items():
            if not self.world.txns.is_torn_at(producer_id):
                raise Violation(
                    "C4 a marker outlives its data", f"{place}: no marker ends {next(iter(values.items()))}"
                )
            self.world.count("transaction left open by a power loss")
        return {offset: value for offset, value in sorted(committed.items()) if offset >= log.log_start}

    def _may_lose(self, topic: str) -> bool:
        return self.world.is_keyed(topic) or self.world.may_trim(topic)

    def _check_asked_for(self, place: Place, producer_id: int, values: Values) -> None:
        for value in values.values():
            txn = self.world.txns.by_value.get(value)
            if txn is None:
                if not self.world.may_be_torn(producer_id):
                    raise Violation(
                        "T4 an old epoch appends nothing",
                        f"{place}: {value!r} is committed, and who wrote it had left its transaction to another",
                    )
            elif not txn.commit_sent and not txn.is_torn:
                raise Violation(
                    "C4 a marker outlives its data", f"{place}: a commit follows {value!r}, which nobody asked for"
                )

    def _check_reader(self, place: Place, committed: Values) -> None:
        """T5, T6: what a reader was given is what the markers say; compaction may have taken something since."""
        stable, given = self.world.observer.txn_finals[place]
        expected = [value for offset, value in committed.items() if offset < stable]
        if self._may_lose(place[0]):
            still = dict.fromkeys(expected)
            given = [value for value in given if value in still]
        if given != expected:
            odd = [value for value in (*given, *expected) if given.count(value) != expected.count(value)]
            raise Violation(
                "T5 a reader is given what is committed", f"{place}: up to {stable}, {odd[:3]} differ from the markers"
            )

    def _is_there(self, txn: Txn, seen: dict[bytes, None]) -> bool:
        """Compaction and retention may have taken records of some topics: only those of others tell."""
        telling = [value for value, place in txn.values.items() if not self._may_lose(place[0])]
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
        for group, found in self.world.observer.txn_offsets.items():
            committing = [txn for txn in self.world.txns.txns if txn.group == group and txn.offset is not None]
            if len({txn.transactional_id for txn in committing}) > 1:
                continue  # which of several came last the log says alone: `offsets_follow` tells
            unknown = [txn.offset for txn in committing if txn.is_torn or (txn.commit_sent and not txn.is_committed)]
            expected = last_offsets.get(group, -1)
            allowed = [expected, *(offset for offset in unknown if offset is not None and offset > expected)]
            if found not in allowed:
                raise Violation("T9 offsets are part of the transaction", f"{group} is at {found}, not at {allowed}")
            self.world.count("transactional offset checked")

    def _check_circles(self) -> None:
        """Who read from whom, write-read edges alone: writes of different transactions may interleave (G0)."""
        txns = self.world.txns
        readers = {txn.number: txn for txn in txns.txns if txn.is_committed and not txn.is_torn}
        sources = {
            number: {by.number for value in txn.reads if (by := txns.by_value.get(value)) and by.number in readers}
            for number, txn in readers.items()
        }
        for number, txn in readers.items():
            if number in sources[number]:
                raise Violation("precommitted-read", f"transaction {number} of {txn.producer} has read what it wrote")
        done: set[int] = set()
        for number in readers:
            _walk(number, sources, [], done)
        if any(sources.values()):
            self.world.count("reads between transactions checked")


def _walk(number: int, sources: dict[int, set[int]], path: list[int], done: set[int]) -> None:
    if number in path:
        raise Violation(
            "G1c", f"transactions read from each other in a circle: {[*path[path.index(number) :], number]}"
        )
    if number not in done:
        for source in sorted(sources[number]):
            _walk(source, sources, [*path, number], done)
        done.add(number)
