"""What happened in a run, in order: hashed as it comes, kept as far as somebody wants to read it.

An event is a moment, a kind and plain values: no addresses, no names that Python makes up, nothing that another process
with the same seed would call differently. The hash of all of them is the run's identity.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable
from typing import IO, Final

HASHED_AT_ONCE: Final = 500

Value = str | int | float | None

_QUIET = frozenset({"arrive", "disk", "job"})
"""Kinds that are hashed, and written to a file, but would only bury the others in a report."""


class Trace:
    def __init__(self, now: Callable[[], float], file: IO[str] | None = None, keep: int = 40) -> None:
        self._now = now
        self._file = file
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[tuple[float, str, tuple[Value, ...]]] = []
        self._recent: deque[tuple[float, str, tuple[Value, ...]]] = deque(maxlen=keep)
        self.count = 0

    def event(self, kind: str, *values: Value) -> None:
        now = self._now()
        self.count += 1
        event = (now, kind, values)
        self._pending.append(event)
        if len(self._pending) == HASHED_AT_ONCE:
            self._flush()
        if kind not in _QUIET:
            self._recent.append(event)
        if self._file is not None:
            self._file.write(json.dumps({"at": round(now, 6), "event": kind, "what": values}) + "\n")

    def _flush(self) -> None:
        self._hash.update(repr(self._pending).encode())
        self._pending.clear()

    @property
    def digest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def story(self) -> list[str]:
        """The last events, in words."""
        return [
            f"{at:10.4f} s  {kind}: {' '.join(str(value) for value in values)}" for at, kind, values in self._recent
        ]
