"""D5: after the first failed write or sync nothing more is written, synced again, or shown to anybody.

- A log whose write failed is not written to: the next batch would land behind a hole.
- A file whose sync failed is not synced again: Linux may call the second one a success though the first lost its pages.
- Once the broker has given up a log, neither its end nor its high watermark moves: nothing in it is acknowledged.
- Once a directory is offline, no segment in it is written to.
- Where a write or a sync of a log that is served has failed, its directory is soon offline, or the broker gone.
- Whoever asks for a partition of a directory that is offline is told KAFKA_STORAGE_ERROR.

A flush that a thread had begun when the error came may still go on to other files.
"""

from collections.abc import Callable
from typing import Final

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.log import Log

NOTICED_S: Final = 1.0
"""How long a broker may go on before it has noticed: a thread that had the error may have more to do."""
STEP_S: Final = 0.1
"""What counts of the time between two steps of it: it may have been paused."""
REACHED: Final = ("failure of a served log noticed", "partition of a failed directory asked for")
"""Rare branches that each campaign must have taken."""


class Struck:
    """A log that is served, whose disk has failed."""

    def __init__(self, operation: str, path: str, topic_id: bytes) -> None:
        self.operation = operation
        self.path = path
        self.topic_id = topic_id
        self.since_s = 0.0
        """For how long the broker has run since."""


class FailedDirectory(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._failed: dict[str, str] = {}
        self._unsynced: dict[str, None] = {}
        self._logs: dict[Log, tuple[int, int] | None] = {}
        """Those open when something first failed; end and high watermark of those that were given up since."""
        self._offline: dict[str, None] = {}
        self._struck: dict[str, Struck] = {}
        """By folder, those whose directory is not offline yet."""
        self._stepped_at = 0.0

    def died(self, broker: Broker | None, how: str) -> None:
        self._failed.clear()
        self._unsynced.clear()
        self._logs.clear()
        self._offline.clear()
        self._struck.clear()

    def struck(self, operation: str, path: str) -> None:
        """A fault made this operation fail."""
        if operation == "write" and path.endswith(".log"):
            self._failed.setdefault(path.rpartition("/")[0], path)
        elif operation == "sync":
            self._unsynced[path] = None
        broker = self.world.process.broker
        if broker is not None and self.world.process.is_serving:
            if not self._struck:
                self._stepped_at = self.world.scheduler.now
            folder = path.rpartition("/")[0]
            for partition in broker.partitions:
                self._logs.setdefault(partition.log, None)
                if partition.log.directory == folder and operation in ("write", "sync"):
                    self._struck.setdefault(folder, Struck(operation, path, partition.topic_id))

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
        if self._struck:
            self._check_noticed(broker)

    def _check_noticed(self, broker: Broker) -> None:
        now = self.world.scheduler.now
        ran_s = min(now - self._stepped_at, STEP_S)
        self._stepped_at = now
        for folder, struck in list(self._struck.items()):
            struck.since_s += ran_s
            if folder.rpartition("/")[0] in self._offline:
                self.world.count(REACHED[0])
                del self._struck[folder]
            elif struck.topic_id not in broker.image.topics_by_id or self.world.process.is_stopping:
                del self._struck[folder]
            elif struck.since_s > NOTICED_S:
                raise Violation(
                    "D5 a failed disk is noticed",
                    f"{struck.operation} of {struck.path} failed, and its directory is not offline",
                )

    def judge(self, place: Place, life: int) -> Callable[[int], None] | None:
        """What judges the answer to who asks for a partition now, if it is already clear what that has to be."""
        process = self.world.process
        broker = process.broker
        if broker is None or life != process.life or place[0] not in self.world.topics:
            return None
        directory = broker.partitions.dirs.directory_of(*place)
        if directory is None or directory.offline is None:
            return None

        def told(code: int) -> None:
            if life != process.life or process.is_stopping:
                return
            self.world.count(REACHED[1])
            if code != ErrorCode.KAFKA_STORAGE_ERROR:
                self.world._fail(
                    Violation(
                        "D5 a failed directory is told",
                        f"{place} is in {directory.path}, which is offline: {ErrorCode(code).name}",
                    )
                )

        return told

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
