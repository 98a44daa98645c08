"""What the broker logs as a mistake of its own, and goes on after: an error nobody foresaw, in a handler or in a job.

A peer is then answered UNKNOWN_SERVER_ERROR, which clients try again, and a job comes again in a while: but for the log
nothing is to be seen of it. So a run listens. What is logged with an exception is one of these, unless that is a
failure of the disk in a run whose disk has failed; everything else that is logged during a run is left unsaid.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mainstem.sim.loop import raised_where
from mainstem.storage.errors import StorageError

BROKER: Final = "mainstem.broker"
ABOUT: Final = ("job", "api", "partition", "coordinator")
"""What a line says of where it happened."""


class _Ear(logging.Handler):
    def __init__(self, complain: Callable[[str], None], has_disk_failed: Callable[[], bool]) -> None:
        super().__init__()
        self._complain = complain
        self._has_disk_failed = has_disk_failed
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Of a broker that runs beside the simulation, in a thread of its own, nothing is known here.
        if error is None or not record.name.startswith(BROKER) or record.thread != self._thread:
            return
        if isinstance(error, StorageError | OSError) and self._has_disk_failed():
            return
        about = "".join(f" {name}={value}" for name in ABOUT if (value := getattr(record, name, None)) is not None)
        what = f"{type(error).__name__}: {error}{raised_where(error)}"
        self._complain(f"the broker logs: {record.getMessage()}{about}: {what}")


@contextmanager
def listening(complain: Callable[[str], None], has_disk_failed: Callable[[], bool]) -> Iterator[None]:
    """Has complaints told to `complain`, and nothing that is logged go anywhere else."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [_Ear(complain, has_disk_failed)]
    disabled = root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.handlers = handlers
