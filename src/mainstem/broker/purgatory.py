"""Requests that wait for something to happen to partitions: a fetch for data, a produce for its commit.

A waiter is woken by the partitions it watches and by its deadline, whichever comes first; it decides itself whether
it is satisfied. It leaves all of its partitions in one go, so nothing is kept of a request that was answered.
"""

import asyncio
from collections.abc import Callable, Iterable


class Watchers:
    """Those who wait for one partition. Woken in the order they came."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        if self._waiting:
            for waiter in list(self._waiting):
                waiter.wake()

    def add(self, waiter: "Waiter") -> None:
        self._waiting[waiter] = None

    def discard(self, waiter: "Waiter") -> None:
        self._waiting.pop(waiter, None)


class Waiter:
    """One parked request: `is_satisfied` is asked at each wake-up, `finish` is called once."""

    __slots__ = ("_finish", "_is_satisfied", "_timer", "_watched")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
        watched: Iterable[Watchers],
        is_satisfied: Callable[[], bool],
        finish: Callable[[], None],
    ) -> None:
        self._is_satisfied = is_satisfied
        self._finish = finish
        self._watched = tuple(watched)
        for watchers in self._watched:
            watchers.add(self)
        self._timer: asyncio.TimerHandle | None = loop.call_later(timeout_s, self.complete)

    @property
    def is_done(self) -> bool:
        return self._timer is None

    def wake(self) -> None:
        if self._timer is not None and self._is_satisfied():
            self.complete()

    def complete(self) -> None:
        """Answers now, with what there is."""
        if self._leave():
            self._finish()

    def cancel(self) -> None:
        """Leaves without an answer: whoever asked is gone."""
        self._leave()

    def _leave(self) -> bool:
        timer = self._timer
        if timer is None:
            return False
        self._timer = None
        timer.cancel()
        for watchers in self._watched:
            watchers.discard(self)
        return True
