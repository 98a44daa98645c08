"""Tasks and futures that a set keeps in the same order in every run.

By themselves they are hashed by where they are in memory. `asyncio.TaskGroup` cancels the tasks of a set, and
`asyncio.wait` returns sets: who goes over one goes over it in another order each time, and a seed would be another run.
Here each has a number of its own loop's, given when it is first hashed, which is at the same point of every run.

Interpreted, because compiled classes cannot inherit from these.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

ASYNCIO: Final = asyncio.__path__[0]


def whose(callback: Callable[..., object]) -> str:
    """What a callback of a loop runs, in words: of a task the line of its own at which it is."""
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return getattr(callback, "__qualname__", type(callback).__name__)
    step: Any = task.get_coro()
    where = ""
    while (frame := getattr(step, "cr_frame", None)) is not None and not frame.f_code.co_filename.startswith(ASYNCIO):
        where = f"{frame.f_code.co_qualname}, {frame.f_code.co_filename}:{frame.f_lineno}"
        step = step.cr_await
    return where


def is_unseen(future: "asyncio.Future[Any] | None") -> bool:
    """Whether it has failed, and nobody has looked. asyncio says so when it is let go of."""
    return future is not None and future.done() and future._log_traceback


class SimFuture(asyncio.Future[Any]):
    __slots__ = ("_number",)
    _number: int

    def set_exception(self, exception: BaseException | type[BaseException], /) -> None:
        super().set_exception(exception)
        self.get_loop().failed(self)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = number = self.get_loop().next_number()  # type: ignore[attr-defined]
            return int(number)


class SimTask(asyncio.Task[Any]):
    __slots__ = ("_number",)
    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = number = self.get_loop().next_number()  # type: ignore[attr-defined]
            return int(number)
