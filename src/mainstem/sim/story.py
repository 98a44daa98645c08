"""A run's events in words, and which of them turn it: what a failed seed tells before anybody opens a trace."""

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
        "offset expired",
        "own consumer failed",
        "pause",
        "reader out of range",
        "reboot",
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
    "cut": "nothing gets from {0} to {1} for {2} s",
    "damaged": "the bytes of {0}-{1} are no longer what was written",
    "died": "the broker is gone ({1}), after life {0}",
    "heal": "everything is healed",
    "image taken": "an image of the disk is taken",
    "last": "the last restart: {0}",
    "note": "{0}: {1}",
    "offset expired": "the offset of {0} for {1}-{2} expires",
    "own consumer failed": "{0} fails with {1}, and begins anew",
    "reader out of range": "a reader of {0} hears that {1} is out of range",
    "reboot": "the machine is started anew: of {0} changes that were not synced, {1} are there",
    "reset": "connection {0} is reset: {1}",
    "restarted for its disk": "somebody restarts the broker because of its disk",
    "rot inside": "the last fault: {0} rots",
    "serving": "the broker serves {1} partitions, in life {0}",
    "start": "the broker starts, for life {0}",
    "stop": "the broker is asked to stop, in life {0}",
    "struck": "{0}, at a {1} of {2}",
    "zombie": "connection {0} dies; the last {1} bytes sent on it arrive later",
}


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
