"""Event loops on simulated time: one `SimLoop` for each process, one `Scheduler` for all of them.

- Time moves only when nothing is ready, and then to the next thing that is due. It is the same for every process; what
  their wall clocks show is another matter (`clock`).
- `call_soon` keeps its order, as asyncio promises. What is due at the same instant runs in an order drawn from the
  seed: sockets, timers and threads promise none.
- What a process gives to a thread (`run_in_executor`) runs in one piece, at a drawn moment, and its result arrives at a
  later one. There are no threads.
- A process that dies takes nothing with it: its tasks are abandoned where they stand, so that no `finally` runs, and
  kept from the collector until the run is over. A paused one keeps what would have run for later.
- What failed and nobody looked at is told when it is let go of, and at the latest before its process is gone.
- A loop that never waits, or only for what is due already, is an error, not a hang: the steps of one instant are
  bounded.

This runs for every step of every process, so it is compiled where the hot modules are, and written for that.
"""

import asyncio
import contextvars
import gc
import heapq
import inspect
import itertools
import sys
import traceback
import weakref
from asyncio import _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from mainstem.sim.draws import cubed
from mainstem.sim.tasks import SimFuture, SimTask, is_unseen, whose

T = TypeVar("T")

Context = contextvars.Context

STEPS_PER_INSTANT_MAX: Final = 100_000
TASKS_MIN: Final = 32
EPOCH_MS: Final = 1_700_000_000_000
"""When a run begins, by a clock that is right."""


class ProcessDied(BaseException):
    """Raised out of an operation in the middle of which the process died. Nobody is left to handle it."""


class SimHandle:
    """Something to be called: what asyncio needs of its own `Handle`, without what that one costs per call."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False
        self._when = 0.0

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class Scheduler:
    """Simulated time, and everything that is going to happen."""

    def __init__(self, rng: Random) -> None:
        self.now = 0.0
        self.steps = 0
        self._steps_before = 0
        """How many there had been when time moved last."""
        self.is_decided = False
        """Whether the run is over, whatever was to come: something has failed."""
        self.failures: list[str] = []
        """What a process raised where nobody was waiting for it."""
        self._rng = rng
        self._order = itertools.count()
        self._ready: deque[tuple[SimLoop, SimHandle]] = deque()
        self._due: list[tuple[float, float, int, SimLoop | None, SimHandle | Callable[[], None]]] = []
        self._running: SimLoop | None = None
        self._hooks = sys.get_asyncgen_hooks()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Something that happens to the world, not in a process."""
        heapq.heappush(self._due, (max(when, self.now), self._rng.random(), next(self._order), None, action))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def soon(self, loop: "SimLoop", handle: SimHandle) -> None:
        self._ready.append((loop, handle))

    def timer(self, when: float, loop: "SimLoop", handle: SimHandle) -> None:
        heapq.heappush(self._due, (when, self._rng.random(), next(self._order), loop, handle))

    def run_until(self, is_over: Callable[[], bool], deadline: float) -> bool:
        """Runs until `is_over`, asked between instants; whether it came before the deadline, or the end of all work."""
        try:
            while not self.is_decided and not is_over():
                if not self._next_instant(deadline):
                    return False
        finally:
            self._let_run(None)
        return True

    def run_for(self, seconds: float) -> None:
        """Runs for so long, or until it is decided."""
        deadline = self.now + seconds
        try:
            while not self.is_decided and self._next_instant(deadline):
                pass
        finally:
            self._let_run(None)

    def _next_instant(self, deadline: float) -> bool:
        if not self._ready:
            if not self._due or self._due[0][0] > deadline:
                self._move_to(deadline)
                return False
            self._advance()
        if self._ready:
            self._run_ready()
        return True

    def _let_run(self, loop: "SimLoop | None") -> None:
        """Whose loop asyncio takes for the running one."""
        if loop is not self._running:
            _set_running_loop(loop)
            self._running = loop
            if loop is None:
                sys.set_asyncgen_hooks(*self._hooks)
            else:
                sys.set_asyncgen_hooks(loop.began, loop.let_go)

    def _advance(self) -> None:
        """On to the next instant: everything that is due then becomes ready."""
        when, _, _, loop, what = heapq.heappop(self._due)
        self._move_to(when)
        if loop is None:
            assert not isinstance(what, SimHandle)
            self._let_run(None)
            what()
            self.steps += 1
        else:
            assert isinstance(what, SimHandle)
            if not what.is_cancelled:
                self._ready.append((loop, what))

    def _move_to(self, when: float) -> None:
        if when > self.now:
            self.now = when
            self._steps_before = self.steps

    def _run_ready(self) -> None:
        ready = self._ready
        steps = self.steps - self._steps_before
        while ready:
            loop, handle = ready.popleft()
            if loop.is_dead or handle.is_cancelled:
                continue
            if loop.is_paused:
                loop.parked.append(handle)
                continue
            steps += 1
            if steps > STEPS_PER_INSTANT_MAX:
                raise AssertionError(f"{loop.name} runs without ever waiting: {whose(handle.callback)}")
            self._let_run(loop)
            try:
                args = handle.args
                if not args:
                    handle.context.run(handle.callback)
                elif len(args) == 1:
                    handle.context.run(handle.callback, args[0])
                else:
                    handle.context.run(handle.callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                what = getattr(handle.callback, "__qualname__", type(handle.callback).__name__)
                loop.call_exception_handler({"message": f"{what} failed", "exception": error})
            if loop.after_step is not None:
                loop.after_step()
        self.steps = self._steps_before + steps


class SimClock:
    """A machine's wall clock: it may be wrong, and set."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.skew_ms = 0
        self.before_jump: Callable[[], None] | None = None
        """Called while it still shows what it showed: between two jumps it only goes forward."""
        self.jumps: list[tuple[float, int]] = []
        """When it was set, and what it showed then."""

    def jump(self, by_ms: int) -> None:
        if self.before_jump is not None:
            self.before_jump()
        self.jumps.append((self._scheduler.now, self.wall_ms()))
        self.skew_ms += by_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._scheduler.now * 1000)

    def breathe(self) -> None:
        """Nothing waits for its turn: there are no threads."""


class SimLoop(asyncio.AbstractEventLoop):
    """What one process sees of the scheduler, the network and its threads."""

    def __init__(self, scheduler: Scheduler, rng: Random, name: str, network: Any = None) -> None:
        self.name = name
        self.life = 0
        """Which life of its process this loop is."""
        self.is_dead = False
        self.is_paused = False
        self.is_stalled = False
        """Paused, but for its threads: a callback that takes too long (X10)."""
        self.lateness: Callable[[], float] | None = None
        """By how much timers are late now, if they are (K3)."""
        self.after_step: Callable[[], None] | None = None
        """Called after each step of the process, on its loop or on one of its threads."""
        self.parked: list[SimHandle] = []
        self.abandoned: list[asyncio.Task[Any]] = []
        self.disk_delay: Callable[[], float] = lambda: 0.0001 + 0.002 * cubed(rng)
        """How long a thread takes to begin, and its result to arrive."""
        self.busy: object = None
        """Threads that have much to do, if any have: `busy_delay` is how long one of them takes to begin."""
        self.busy_delay: Callable[[], float] = self.disk_delay
        self.scheduler = scheduler
        self._tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        """Its own, in the order they were made: asyncio knows those of all loops only, in no order."""
        self._tasks_max = TASKS_MIN
        self._failed: list[weakref.ref[asyncio.Future[Any]]] = []
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []
        """The async generators that were begun, in order."""
        self._generators_max = TASKS_MIN
        self._orphans: list[AsyncGenerator[Any, Any]] = []
        """Those that nobody iterates over any more, and that are still to be closed."""
        # Drawn, so that tasks of two loops are not hashed alike: asyncio keeps those of all loops, and of all runs that
        # the collector has not come by, in one set.
        self._numbered = rng.getrandbits(60)
        self._network = network
        self._debug = False

    # Time

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, context)
        if not self.is_dead:
            self.scheduler.soon(self, handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, context)
        if not self.is_dead:
            self.scheduler.soon(self, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        return self._at(self.scheduler.now + max(delay, 0), SimHandle(callback, args, context))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        return self._at(when, SimHandle(callback, args, context))

    def _at(self, when: float, handle: SimHandle) -> SimHandle:
        if self.lateness is not None:
            when += self.lateness()
        handle._when = when
        if not self.is_dead:
            self.scheduler.timer(when, self, handle)
        return handle

    # Tasks and threads

    def next_number(self) -> int:
        """What the next task or future is hashed by."""
        self._numbered += 1
        return self._numbered

    def create_future(self) -> "asyncio.Future[Any]":
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        # A name of its own: the default one comes from a counter of the whole Python process.
        task = SimTask(coro, loop=self, name=name or "task", context=context)
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._tasks_max:
            self._tasks = [each for each in self._tasks if _lives(each())]
            self._tasks_max = 2 * len(self._tasks) + TASKS_MIN
        if self.is_dead:
            coro.close()  # it will never begin, and nobody is to be warned of that
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        is_busy = executor is not None and executor is self.busy
        delay_s = self.busy_delay() if is_busy else self.disk_delay()
        self.scheduler.later(delay_s, partial(self._run_job, future, func, args))
        return future

    def _run_job(self, future: "asyncio.Future[T]", func: Callable[..., T], args: Any) -> None:
        if self.is_dead:
            return
        if self.is_paused and not self.is_stalled:
            self.parked.append(SimHandle(self._run_job, (future, func, args), None))
            return
        try:
            result = func(*args)
        except ProcessDied:
            return
        except Exception as error:
            self.call_later(self.disk_delay(), _settle, future, None, error)
        else:
            self.call_later(self.disk_delay(), _settle, future, result, None)
        if self.after_step is not None:
            self.after_step()

    def failed(self, future: "asyncio.Future[Any]") -> None:
        """A future of this loop has failed."""
        self._failed.append(weakref.ref(future))

    @property
    def has_unseen(self) -> bool:
        """Whether something has failed that nobody has looked at yet, or ever will.

        Then the collector has to come by, which it does not do by itself during a run: a failure is in a cycle with the
        frames that it came through where code is interpreted, and in none where it is compiled. Both tell the same.
        """
        return any(is_unseen(each()) for each in self._failed) or any(is_unseen(each()) for each in self._tasks)

    # Network

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self._network.listen(self, protocol_factory, host, port, options.get("start_serving", True))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self.connecting(protocol_factory, host, port)

    def connecting(self, protocol_factory: Any, host: Any, port: Any) -> "asyncio.Future[tuple[Any, Any]]":
        """What `create_connection` waits for, for who has no need of a task to wait in."""
        connecting: asyncio.Future[tuple[Any, Any]] = self._network.connecting(self, protocol_factory, host, port)
        return connecting

    # Life and death

    def abandon(self) -> None:
        """The process is gone, wherever its tasks were."""
        if not self.is_dead and self.has_unseen:
            gc.collect()
        self.is_dead = True
        self.parked.clear()
        for each in self._tasks:
            task = each()
            if task is None or task.done():
                continue
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # it never began: there is nothing in it to run, and nobody to be warned
            self.abandoned.append(task)

    def pause(self, *, stalled: bool = False) -> None:
        self.is_paused = True
        self.is_stalled = stalled

    def resume(self) -> None:
        self.is_paused = False
        parked, self.parked = self.parked, []
        if not self.is_dead:
            for handle in parked:
                self.scheduler.soon(self, handle)

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_dead or isinstance(error, ProcessDied):
            return
        self.scheduler.failures.append(
            f"{self.name}: {context.get('message')}: {type(error).__name__}: {error}{raised_where(error)}"
        )

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def began(self, generator: "AsyncGenerator[Any, Any]") -> None:
        """Somebody iterates over an async generator for the first time."""
        self._generators.append(weakref.ref(generator))
        if len(self._generators) > self._generators_max:
            self._generators = [each for each in self._generators if each() is not None]
            self._generators_max = 2 * len(self._generators) + TASKS_MIN

    def let_go(self, generator: "AsyncGenerator[Any, Any]") -> None:
        """Nobody iterates over it any more: it is closed, unless its process is dead and runs no `finally`."""
        if not self.is_dead:
            self._generators = [each for each in self._generators if each() is not generator]
            self._orphans.append(generator)
            self.call_soon(self._close_orphans)

    def _close_orphans(self) -> None:
        orphans, self._orphans = self._orphans, []
        for each in orphans:
            self.create_task(each.aclose())

    async def shutdown_asyncgens(self) -> None:
        """As asyncio does it: all that are not at their end are closed, in the order in which they began."""
        began, self._generators = self._generators, []
        generators = [generator for each in began if (generator := each()) is not None]
        orphans, self._orphans = self._orphans, []
        generators += orphans
        outcomes = await asyncio.gather(*[each.aclose() for each in generators], return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.call_exception_handler({"message": "an async generator failed to close", "exception": outcome})


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """What a thread found arrives, unless nobody waits for it any more."""
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _lives(task: "asyncio.Task[Any] | None") -> bool:
    return task is not None and (not task.done() or is_unseen(task))


def raised_where(error: object) -> str:
    """The last calls before it was raised, innermost first, without addresses."""
    if not isinstance(error, BaseException):
        return ""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return "".join(f", in {each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in reversed(frames))


def make_loop(scheduler: Scheduler, rng: Random, name: str, network: Any = None) -> SimLoop:
    """A process's loop. What it leaves out of asyncio's interface (pipes, signals) does not exist here."""
    return SimLoop(scheduler, rng, name, network)  # type: ignore[abstract]
