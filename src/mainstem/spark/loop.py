"""An event loop and a client for code that Spark calls synchronously: in planners, in workers, in commits.

Spark's Python processes are reused from task to task, so the loop and the connections are the module's, made once for
each set of options. The loop runs only while something is waited for; what brokers send meanwhile waits in the
sockets. A process that was forked after it made them (Spark forks before any task runs) starts anew.

`settle_down` keeps the garbage collector off: Spark's daemon collects after every task, and walking all modules costs
ten times what a small task does. A few early freezes take them out of its sight (measured: 27 ms down to 3 ms a task).

It also has the C library keep memory that is freed. Tasks use buffers of megabytes, one after the other; given back to
the system each time, their pages have to be made and cleared anew, which is two thirds of what encoding rows costs.
"""

import asyncio
import ctypes
import gc
import os
import random
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from mainstem.client.cluster import Cluster
from mainstem.client.options import CommonOptions

T = TypeVar("T")

_FREEZE_AT: Final = frozenset({1, 2, 4, 8})

KEPT_BYTES: Final = 128 << 20
"""Freed memory that a worker keeps at most, at the end of its heap."""

MAPPED_FROM_BYTES: Final = 32 << 20
"""Larger buffers come from the system one by one and go back to it; this is the most that glibc takes."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


class Runner:
    """One loop, and the clusters that were asked for on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = _new_loop()
        self._clusters: dict[CommonOptions, Cluster] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def wait(self, future: Awaitable[T]) -> T:
        return self._loop.run_until_complete(_await(future))

    def cluster(self, options: CommonOptions) -> Cluster:
        found = self._clusters.get(options)
        if found is None or found.is_closed:
            found = _cluster(options) if self._loop.is_running() else self.run(_cluster_soon(options))
            self._clusters[options] = found
        return found


_runner: Runner | None = None
_tasks = 0


def runner() -> Runner:
    global _runner
    if _runner is None or _runner.pid != os.getpid():
        _runner = Runner()
    return _runner


def settle_down() -> None:
    """Called at the start of every task."""
    global _tasks
    _tasks += 1
    if _tasks == 1:
        keep_memory()
    if _tasks in _FREEZE_AT:
        gc.collect()
        gc.freeze()


def keep_memory() -> None:
    """Only glibc has this, and who has set it in the environment has it as set."""
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _await(future: Awaitable[T]) -> T:
    return await future


def _cluster(options: CommonOptions) -> Cluster:
    return Cluster(options, random.Random())


async def _cluster_soon(options: CommonOptions) -> Cluster:
    return _cluster(options)
