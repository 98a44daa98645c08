"""What the synchronous faces stand on: one loop, in one daemon thread, for all clients of the process.

`run` hands a coroutine to that loop and waits for what it gives. It is for calls that go to a broker; what happens for
every record (`Producer.send`) does not cross threads.

The loop starts with the first client and stays. After a fork the child has no such thread, so it starts one of its own;
clients of the parent are of no use there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mainstem.client.batches import LOOP_THREAD_NAME
from mainstem.client.errors import IllegalStateError

T = TypeVar("T")


class LoopThread:
    """A loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._serve, name=LOOP_THREAD_NAME, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this very thread, where waiting for the loop would be waiting for itself."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives or raises. An interrupt (Ctrl-C) while it waits cancels it."""
        if self.pid != os.getpid():
            work.close()
            raise IllegalStateError("a client does not survive a fork; make one in the new process")
        if self.is_current:
            work.close()
            raise IllegalStateError("a synchronous client cannot be used in a callback of its own; use the async one")
        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise IllegalStateError("the client was closed") from None
        except BaseException:
            if not running.done():
                running.cancel()
                # What it leaves behind it leaves before we go on.
                with contextlib.suppress(BaseException):
                    running.result(1)
            raise


_shared: LoopThread | None = None
_starting = threading.Lock()


def loop_thread() -> LoopThread:
    """The loop of this process's synchronous clients."""
    global _shared
    with _starting:
        if _shared is None or _shared.pid != os.getpid():
            _shared = LoopThread()
        return _shared


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # where there is no build of it
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
