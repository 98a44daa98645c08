"""D7: a checkpoint file is the old one or the new one, and a crash never looks like a clean stop.

- Judged at each start, by the files as the start finds them: version, number of entries, and as many lines as that
  says. What is written by an atomic replacement is whole after any crash, also on a disk that failed.
- Once a log of a directory is open, the marker of a clean stop is gone from that directory: a start that dies in the
  middle is no clean stop (KAFKA-10471). It is gone for good: no start after a crash finds it again.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation

MARKER = "/.kafka_cleanshutdown"
MAY_BE_EMPTY = "cleaner-offset-checkpoint"
"""There from the first start on, and written when something was compacted."""
_SUFFIX = "-checkpoint"
_HEADER_LINES = 2


class CheckpointsAreWhole(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._used: set[str] = set()
        """Directories in which logs were open since the last clean stop."""

    def starting(self) -> None:
        """The broker is about to start, with the disk as it is."""
        disk = self.world.disk
        for folder in sorted(self._used):
            if disk.exists(folder + MARKER):
                raise Violation("D7 a crash is no clean stop", f"{folder + MARKER} is back after a crash")
        for path in disk.files(_SUFFIX):
            if path.endswith(_SUFFIX) and not is_whole(path, disk.peek(path)):
                raise Violation("D7 a checkpoint is old or new", f"{path} is {disk.peek(path)[:80]!r}")

    def died(self, broker: Broker | None, how: str) -> None:
        if how != "stopped":
            self._look(broker)
        # Where it is now, with all logs closed, a clean stop has written it, whatever becomes of the machine then.
        self._used = {folder for folder in self._used if not self.world.disk.exists(folder + MARKER)}

    def forget(self) -> None:
        self._used.clear()

    def served(self, broker: Broker) -> None:
        self._look(broker)

    def _look(self, broker: Broker | None) -> None:
        if broker is None:
            return
        for place, log in broker.partitions.dirs.logs.items():
            folder = log.directory.rpartition("/")[0]
            if not log.is_closed and self.world.disk.exists(folder + MARKER):
                raise Violation(
                    "D7 a crash is no clean stop", f"{place[0]}-{place[1]} is open, and {folder + MARKER} is there"
                )
            if not log.is_closed:
                self._used.add(folder)
            self.world.count("marker of a clean stop looked for")


def is_whole(path: str, data: bytes) -> bool:
    if not data:
        return path.endswith(MAY_BE_EMPTY)
    lines = data.split(b"\n")
    if len(lines) <= _HEADER_LINES or lines.pop() != b"" or not all(each.isdigit() for each in lines[:_HEADER_LINES]):
        return False
    return int(lines[1]) == len(lines) - _HEADER_LINES and all(lines)
