"""Jepsen's checks of what clients saw, by Jepsen's names, against everything that can be read at the end.

`lost-write` and `unseen` in one: what was acknowledged and may not have been removed is there, at its offset.
`duplicate`, `inconsistent-offsets`: a value has one offset, an offset one value. `nonmonotonic-send`: one producer's
records are in the order it sent them. `phantom`: nothing is there that nobody sent.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation


class HistoryHolds(Checker):
    def at_end(self, broker: Broker) -> None:
        for place, (start, end, records) in self.world.finals.items():
            self._check(place, start, end, records)

    def _check(self, place: Place, start: int, end: int, records: list[tuple[int, bytes | None, bytes | None]]) -> None:
        ledger = self.world.ledger
        life = self.world.process.life
        there: dict[int, bytes] = {}
        last_of_key: dict[bytes | None, int] = {}
        newest: dict[str, int] = {}
        for offset, key, value in records:
            assert value is not None
            ledger.read(place, offset, value, life)
            there[offset] = value
            last_of_key[key] = offset
            send = ledger.sends[value]
            if send.ordered:
                if newest.get(send.producer, -1) > send.number:
                    raise Violation("nonmonotonic-send", f"{place}: {value!r} at {offset} comes after a later one")
                newest[send.producer] = send.number
        if start > 0 and not self.world.may_trim(place[0]):
            raise Violation("lost-write", f"{place} starts at {start}, and nothing may be removed from it")
        compacted = self.world.is_keyed(place[0])
        for value, send in ledger.sends.items():
            if send.place != place or send.acked_at is None or send.acked_at < start:
                continue
            if there.get(send.acked_at) != value:
                if compacted and last_of_key.get(send.key, -1) > send.acked_at:
                    self.world.count("record compacted away")
                    continue
                raise Violation(
                    "lost-write",
                    f"{place}: {value!r} was acknowledged at {send.acked_at}; the log goes from {start} to {end} "
                    f"and has {there.get(send.acked_at)!r} there",
                )
