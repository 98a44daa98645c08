"""Whose turn it is to flush, where there are more logs than files may be open.

A flush holds the files open that it has to sync, from when it is begun until a thread has synced them, and a thousand
partitions may be written to in one moment. So all flushes of a broker's logs take their files out of one budget:

- It is half of what logs may have open now (`OpenFiles.capacity`); the rest is for who appends and reads meanwhile.
- Whoever does not find room waits in line. A turn comes in the order in which it was asked for, and nobody who asks
  later goes before: who needs many files gets what there is room for, and asks again for the rest.
- A flush is begun when its turn has come, and so covers all that was appended until then. What waits for it to be
  acknowledged goes on waiting.
- Where the system has no file to give all the same, that is no failure of a disk: the turn comes again, when another
  flush is done or a little later.

All of it is on the event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from mainstem.storage.errors import OutOfFilesError
from mainstem.storage.flushing import FlushJob
from mainstem.storage.open_files import OpenFiles

log = logging.getLogger(__name__)

Turn = Callable[[int], FlushJob | None]
"""Begins a flush that holds about so many files; None where there is none to be made any more. OutOfFilesError where it
is to be asked again."""

_SHARE: Final = 2
_ON_THE_WAY: Final = 1
"""How many files a flush opens by itself at a time: epochs, a snapshot, the folder."""
_AGAIN_S: Final = 0.1


class FlushTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, files: OpenFiles | None = None) -> None:
        """Without `files` there is no bound."""
        self.files_max = 1 << 30
        """A bound besides."""
        self._loop = loop
        self._files = files
        self._line: deque[Turn] = deque()
        self._taken: dict[FlushJob, int] = {}
        """What each flush under way has been given: it lets go of its files before it is done."""
        self._taken_files = 0
        self._is_serving = False
        self._again: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        most = self.files_max if self._files is None else min(self._files.capacity // _SHARE, self.files_max)
        return max(most, 1) - self._taken_files

    def ask(self, turn: Turn) -> None:
        """Has `turn` called: at once where nobody is before it and there is room. `done` must follow what it begins."""
        self._line.append(turn)
        self._serve()

    def done(self, job: FlushJob) -> None:
        """The flush has let go of its files."""
        self._taken_files -= self._taken.pop(job)
        self._serve()

    async def begun(self, begin: Turn) -> FlushJob | None:
        """What `begin` has begun when its turn had come, or raised."""
        result: asyncio.Future[FlushJob | None] = self._loop.create_future()

        def turn(files_max: int) -> FlushJob | None:
            if result.done():
                return None  # nobody waits for it any more
            try:
                job = begin(files_max)
            except OutOfFilesError:
                raise
            except Exception as error:
                result.set_exception(error)
                return None
            result.set_result(job)
            return job

        self.ask(turn)
        return await result

    def _serve(self) -> None:
        """Whoever has a turn may ask for another, or end others' flushes: they join this."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._line and self.room > 0:
                turn = self._line.popleft()
                try:
                    job = turn(self.room)
                except OutOfFilesError:
                    self._line.appendleft(turn)
                    self._serve_later()
                    return
                except Exception:
                    # Our own fault. Were it raised, those behind it in the line would wait until somebody else asks.
                    log.exception("failed to begin a flush")
                    continue
                if job is not None:
                    files = job.files + _ON_THE_WAY
                    self._taken[job] = files
                    self._taken_files += files
        finally:
            self._is_serving = False

    def _serve_later(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(_AGAIN_S, self._serve_again)

    def _serve_again(self) -> None:
        self._again = None
        self._serve()
