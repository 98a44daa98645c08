"""What happened in a run, in order: hashed as it comes, kept as far as somebody wants to read it.

An event is a moment, a kind and plain values: no addresses, no names that Python makes up, nothing that another process
with the same seed would call differently. The hash of all of them is the run's identity. It is taken over `marshal`'s
version 2, in which equal values have equal bytes (later versions also tell which objects are shared), for a third of
what text would cost: to write a float in decimals is slow.
"""

import hashlib
import json
import marshal
from collections import deque
from typing import IO, Final

from mainstem.sim.loop import Scheduler
from mainstem.sim.story import TURNS, Subject, Value, tell

HASHED_AT_ONCE: Final = 500
MARSHAL_VERSION: Final = 2

REMEMBERED: Final = 3000
"""How many of the events that turn nothing are kept, until it is known what they have to be about."""

_QUIET: Final = frozenset({"arrive", "disk", "hung up"})
"""Kinds that are hashed, and written to a file, but would only bury the others in a report."""


class Trace:
    def __init__(
        self, scheduler: Scheduler, file: IO[str] | None = None, keep_turns: int = 25, keep_others: int = 20
    ) -> None:
        self._scheduler = scheduler
        self._file = file
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[tuple[float, str, tuple[Value, ...]]] = []
        self._keep_others = keep_others
        self._turns: deque[tuple[int, float, str, tuple[Value, ...]]] = deque(maxlen=keep_turns)
        self._others: deque[tuple[int, float, str, tuple[Value, ...]]] = deque(maxlen=REMEMBERED)
        self.count = 0

    def event(self, kind: str, *values: Value) -> None:
        now = self._scheduler.now
        self.count += 1
        self._pending.append((now, kind, values))
        if len(self._pending) == HASHED_AT_ONCE:
            self._flush()
        if kind not in _QUIET:
            kept = self._turns if kind in TURNS else self._others
            kept.append((self.count, now, kind, values))
        if self._file is not None:
            self._file.write(json.dumps({"at": round(now, 6), "event": kind, "what": values}) + "\n")

    def end(self) -> None:
        """Writes nothing more: the file is its owner's to close, and what is let go of may still do something."""
        self._file = None

    def _flush(self) -> None:
        self._hash.update(marshal.dumps(self._pending, MARSHAL_VERSION))
        self._pending.clear()

    @property
    def digest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def story(self, about: str = "") -> list[str]:
        """The last events in words: those that turned the run, and between them the last of those that are about what
        is told here; or of all others, where that names no partition and nothing else that is known."""
        subject = Subject(about)
        others = [event for event in self._others if subject.concerns(event[2], event[3])]
        if not others and not subject.has_places:
            others = list(self._others)
        kept = sorted([*self._turns, *others[-self._keep_others :]], key=lambda event: event[0])
        return [tell(at, kind, values) for _, at, kind, values in kept]
