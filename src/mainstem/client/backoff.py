"""How long to wait before the next try: longer after each failure, and never the same for all (KIP-580)."""

from __future__ import annotations

from random import Random
from typing import Final

JITTER: Final = 0.2
_DOUBLINGS_MAX: Final = 30


class Backoff:
    """Doubles from `first_ms` to `most_ms`, and then is up to a fifth more or less."""

    __slots__ = ("_first_s", "_most_s", "_rng", "failures")

    def __init__(self, first_ms: float, most_ms: float, rng: Random) -> None:
        self._first_s = min(first_ms, most_ms) / 1000
        self._most_s = most_ms / 1000
        self._rng = rng
        self.failures = 0

    def next_s(self) -> float:
        """The seconds to wait after one more failure."""
        delay_s = min(self._first_s * (1 << min(self.failures, _DOUBLINGS_MAX)), self._most_s)
        self.failures += 1
        return delay_s * (1 - JITTER + 2 * JITTER * self._rng.random())

    def reset(self) -> None:
        self.failures = 0
