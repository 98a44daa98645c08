"""Jepsen's checks of what clients saw, by Jepsen's names, against everything that can be read at the end.

`lost-write`: what was acknowledged and may not have been removed is there, at its offset; `unseen` where nothing
behind it is there either.
`duplicate`, `inconsistent-offsets`: a value has one offset, an offset one value. `nonmonotonic-send`: one producer's
records are in the order it sent them; `int-nonmonotonic-send` where both are of one transaction. `phantom`: nothing is
there that nobody sent.

What a producer was not told of when it began anew, under another producer id, may still be on its way, and nothing
tells the broker that it is late: it need be in order only with what was sent under the same id.
"""

from mainstem.broker.app import Broker
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Send, Violation
from mainstem.sim.workloads import Records, identity


class HistoryHolds(Checker):
    def at_end(self, broker: Broker) -> None:
        for place, (start, end, records) in self.world.observer.finals.items():
            if place not in self.world.ledger.damaged:
                self._check(place, start, end, records)

    def _check(self, place: Place, start: int, end: int, records: Records) -> None:
        ledger = self.world.ledger
        life = self.world.process.life
        there: dict[int, bytes] = {}
        last_of_key: dict[bytes | None, int] = {}
        newest: dict[str, dict[int, Send]] = {}
        """Of each producer, by how often it had begun anew."""
        for offset, key, value in records:
            ledger.read(place, offset, value, life)
            there[offset] = value
            last_of_key[key] = offset
            send = ledger.sends[value]
            if send.ordered and not (send.is_sent_anew and self._was_cut(place[0])) and not ledger.may_be_twice(send):
                before = newest.setdefault(send.producer, {})
                later = next((each for each in before.values() if _is_out_of_order(each, send)), None)
                if later is not None:
                    raise Violation(
                        f"{self._is_within(later.value, value)}nonmonotonic-send",
                        f"{place}: {value!r} at {offset} comes after {later.value!r}, which was sent later",
                    )
                before[send.begun] = send
        if start > 0 and not self.world.may_trim(place[0]):
            raise Violation("lost-write", f"{place} starts at {start}, and nothing may be removed from it")
        compacted = self.world.is_keyed(place[0])
        sends = [send for send in ledger.sends.values() if send.place == place]
        buried = self._buried(place, sends) if compacted else {}
        for send in sends:
            if send.acked_at is None or send.acked_at < start or there.get(send.acked_at) == send.value:
                continue
            if compacted and max(last_of_key.get(send.key, -1), buried.get(send.key, -1)) > send.acked_at:
                self.world.count("record compacted away")
                continue
            if compacted and send.is_tombstone and send.key not in last_of_key:
                self.world.count("tombstone compacted away")
                continue
            raise Violation(
                "lost-write" if max(there, default=-1) > send.acked_at else "unseen",
                f"{place}: {send.value!r} was acknowledged at {send.acked_at}; the log goes from {start} to {end} "
                f"and has {there.get(send.acked_at)!r} there",
            )

    def _is_within(self, one: bytes, other: bytes) -> str:
        """What stands before the name of a violation where both are of one transaction."""
        txn = self.world.txns.by_value.get(one)
        return "int-" if txn is not None and other in txn.values else ""

    def _was_cut(self, topic: str) -> bool:
        """What is lost of one partition may cost a producer its epoch, and its order on all of them."""
        return any(self.world.ledger.was_cut(place) for place in self.world.ledger.histories if place[0] == topic)

    def _buried(self, place: Place, sends: list[Send]) -> dict[bytes | None, int]:
        """Of each key the last tombstone that may have come and gone: one whose outcome its client does not know may
        have been appended all the same, and where it was is known from the log."""
        appended = self._appended(place)
        buried: dict[bytes | None, int] = {}
        for send in sends:
            if send.is_tombstone:
                at = send.acked_at
                if at is None:
                    at = 1 << 62 if appended is None else appended.get(send.value, -1)
                buried[send.key] = max(buried.get(send.key, -1), at)
        return buried

    def _appended(self, place: Place) -> dict[bytes, int] | None:
        """Where each record was appended that is not lost; None on another disk, which nobody has watched."""
        written = self.world.written.find(place)
        if written is None or not written.is_known:
            return None
        return {identity(record): record.offset for batch in written.batches for record in iterate_records(batch)}


def _is_out_of_order(before: Send, after: Send) -> bool:
    """Whether two records of one producer may not be in a log in this order."""
    was_given_up = after.acked_at is None and after.begun < before.begun
    return before.number > after.number and not was_given_up
