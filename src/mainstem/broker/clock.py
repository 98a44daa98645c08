"""Where the broker's time comes from, so that a simulated one can stand in."""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as records carry them; may jump."""

    def breathe(self) -> None:
        """In a thread that computes for long: lets the event loop run, which compiled code never does by itself."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def breathe(self) -> None:
        time.sleep(0.0001)  # a pause of no length would end before the loop has woken up
