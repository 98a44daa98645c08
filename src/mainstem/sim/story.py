"""A run's events in words, and which of them matter: what a failed seed tells before anybody opens a trace.

Those that turn the run always do. Of the others those that are about what the violation names: a partition, a group, a
client, a transaction.
"""

import re
from typing import Final

Value = str | int | float | None

TURNS: Final = frozenset(
    {
        "another disk",
        "client died",
        "client paused",
        "clock",
        "cut",
        "damaged",
        "died",
        "heal",
        "image taken",
        "last",
        "note",
        "pause",
        "reboot",
        "rotted",
        "restarted for its disk",
        "rot inside",
        "serving",
        "start",
        "stop",
        "struck",
        "zombie",
    }
)
"""Faults, lives and what users note: hundreds of acknowledgements between two of them must not push them out."""

_WORDS: Final = {
    "acked": "{0} is told that its batch is at {2} of {1}",
    "another disk": "the machine gets another disk",
    "assigned": "{0} has partitions {3} in generation {2} of {1}",
    "client died": "{0} dies, and another takes its place",
    "client paused": "{0} is paused",
    "clock": "the broker's clock is {0} ms off",
    "connect": "{0} connects to {1}: connection {2}",
    "came back shorter": "{0} comes back with end {1}, and {2} batches are gone",
    "cut": "nothing gets from {0} to {1} for {2} s",
    "deleted before": "{0} is to be deleted up to {1}",
    "damaged": "the bytes of {0}-{1} are no longer what was written",
    "died": "the broker is gone ({1}), after life {0}",
    "heal": "everything is healed",
    "image taken": "an image of the disk is taken",
    "last": "the last restart: {0}",
    "log cleaned": "{0} has been cleaned",
    "note": "{0}: {1}",
    "offset expired": "the offset of {0} for {1}-{2} expires",
    "own consumer failed": "{0} fails with {1}, and begins anew",
    "reader out of range": "a reader of {0} hears that {1} is out of range",
    "reboot": "the machine is started anew: of {0} changes that were not synced, {1} are there",
    "reset": "connection {0} is reset: {1}",
    "restarted for its disk": "somebody restarts the broker because of its disk",
    "rotted": "bytes of {0} change by themselves",
    "rot inside": "the last fault: {0} rots",
    "serving": "the broker serves {1} partitions, in life {0}",
    "start": "the broker starts, for life {0}",
    "stop": "the broker is asked to stop, in life {0}",
    "struck": "{0}, at a {1} of {2}",
    "topic created": "{0} creates topic {1}",
    "topic deleted": "{0} deletes topic {1}",
    "zombie": "connection {0} dies; the last {1} bytes sent on it arrive later",
}


_PLACE: Final = re.compile(r"\('([^']+)', (\d+)\)")
_NAME: Final = re.compile(r"[\w-]+")
_NUMBERED: Final = re.compile(r".+-\d+")
_TRANSACTION: Final = re.compile(r"\btransaction (\d+)")


class Subject:
    """What a violation is about, by the names in it."""

    def __init__(self, told: str) -> None:
        self._names = frozenset(_NAME.findall(_PLACE.sub(r"\1-\2", told)))
        self.has_places = any(_NUMBERED.fullmatch(name) for name in self._names)
        self._transactions = frozenset(_TRANSACTION.findall(told))
        self._connections: set[Value] = set()

    def concerns(self, kind: str, values: tuple[Value, ...]) -> bool:
        """Whether an event is about it; asked in the order of the events."""
        if kind == "reset":
            return values[0] in self._connections
        if kind == "connect":
            if not self._is_named(values[0]):
                return False
            self._connections.add(values[2])
            return True
        if kind == "ended":
            return self._is_named(values[0]) or str(values[1]) in self._transactions
        if kind == "acked":
            return self._is_place_named(values[1])
        if kind == "offset expired":
            return self._is_named(values[0])
        return any(self._is_named(value) or self._is_place_named(value) for value in values)

    def _is_named(self, value: Value) -> bool:
        """Of a client, too, that took the place of another, or has the transactional id of another."""
        return isinstance(value, str) and value.rstrip("'").removesuffix("-rival") in self._names

    def _is_place_named(self, value: Value) -> bool:
        """Whether a partition is; or its topic, where no partition is: that may be a word like any other."""
        if not isinstance(value, str):
            return False
        return value in self._names or (not self.has_places and value.rpartition("-")[0] in self._names)


def tell(at: float, kind: str, values: tuple[Value, ...]) -> str:
    """One event, as a line."""
    if kind == "pause":
        what = "the broker's loop is stalled, its threads go on" if values[0] else "the broker is paused"
    elif kind == "ended":
        what = f"{values[0]} has {'committed' if values[2] else 'aborted'} its transaction {values[1]}"
    elif kind in _WORDS:
        what = _WORDS[kind].format(*values)
    else:
        what = f"{kind}: {' '.join(str(value) for value in values)}"
    return f"{at:10.4f} s  {what}"
