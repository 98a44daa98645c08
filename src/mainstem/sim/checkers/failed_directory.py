"""D5: after the first failed write or sync nothing more is written, synced again, or shown to anybody.

- A log whose write failed is not written to: the next batch would land behind a hole.
- A file whose sync failed is not synced again: Linux may call the second one a success though the first lost its pages.
- Once the broker has given up a log, neither its end nor its high watermark moves: nothing in it is acknowledged.
- Once a directory is offline, no segment in it is written to.

A flush that a thread had begun when the error came may still go on to other files.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log


class FailedDirectory(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._failed: dict[str, str] = {}
        self._unsynced: dict[str, None] = {}
        self._logs: dict[Log, tuple[int, int] | None] = {}
        """Those open when something first failed; end and high watermark of those that were given up since."""
        self._offline: dict[str, None] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._failed.clear()
        self._unsynced.clear()
        self._logs.clear()
        self._offline.clear()

    def struck(self, operation: str, path: str) -> None:
        """A fault made this operation fail."""
        if operation == "write" and path.endswith(".log"):
            self._failed.setdefault(path.rpartition("/")[0], path)
        elif operation == "sync":
            self._unsynced[path] = None
        broker = self.world.process.broker
        if broker is not None and self.world.process.is_serving:
            for partition in broker.partitions:
                self._logs.setdefault(partition.log, None)

    def after_step(self, broker: Broker) -> None:
        if not self._logs:
            return
        for directory in broker.partitions.dirs.directories:
            if directory.offline is not None:
                self._offline[directory.path] = None
        for log, ends in self._logs.items():
            now = (log.log_end, log.high_watermark)
            if ends is None and log.failure is not None:
                self._logs[log] = now
                self.world.count("log given up")
            elif ends is not None and now != ends:
                raise Violation(
                    "D5 a failed log is left alone",
                    f"{log.directory} was given up at end and high watermark {ends}, and has {now}",
                )

    def check(self, operation: str, path: str) -> Violation | None:
        """Whether this operation breaks the promise."""
        if operation == "write" and path.endswith(".log"):
            folder = path.rpartition("/")[0]
            first = self._failed.get(folder)
            if first is not None:
                return Violation("D5 a failed log is left alone", f"{path} was written after a write of {first} failed")
            if folder.rpartition("/")[0] in self._offline:
                return Violation("D5 a failed directory is left alone", f"{path} was written, its directory is offline")
        elif operation == "sync" and path in self._unsynced:
            return Violation("D5 a failed sync is not tried again", path)
        return None
