"""What was appended to each log, batch by batch, and where it ended when the broker came back.

Read from the disk's memory, past the broker, after every step in which a segment was written to. So checkers know
exactly what a power loss has taken: not only what clients had seen, but coordinators' records and markers too.

- A log is looked at as soon as it is open, before anybody can write to it: where it ends then is what recovery left.
- What is there then is what was appended, cut somewhere, byte for byte (D3); compaction and rot aside.
- What lay below its start may be lost as well, where no snapshot of producers speaks for it: a power loss takes what
  was not synced of one segment, and may leave the next.
- Past where it ended there may be one batch more: that of a write that failed with all its bytes written.
- A log that takes the place of another of its topic, in another directory, has all that this one had (D8).
"""

from collections.abc import Callable
from typing import Final

from mainstem.broker.app import Broker
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.sim.disk import SimDisk
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.log import Log

OFFSETS_TOPIC: Final = "__consumer_offsets"
STATE_TOPIC: Final = "__transaction_state"

Appended = Callable[[Place, BatchView], None]
Reopened = Callable[[Place, int, list[BatchView], list[BatchView]], None]


class WrittenLog:
    """One log. `lost` is what it had, once, and was not there when it came back."""

    def __init__(self, place: Place, topic: bytes) -> None:
        self.place = place
        self.topic = topic
        """What its folder says of whose partition it is."""
        self.batches: list[BatchView] = []
        self.lost: list[BatchView] = []
        self.end = 0
        self.is_known = True
        """Whether everything that it has was seen when it was written."""
        self._lost_below: list[BatchView] = []
        """What was lost below its start, until it is back."""
        self._path = ""
        self._position = 0

    def read_on(self, log: Log, disk: SimDisk) -> list[BatchView]:
        """What was appended since."""
        found: list[BatchView] = []
        segments = log.segments
        for at, segment in enumerate(segments):
            if at + 1 < len(segments) and segments[at + 1].base_offset <= self.end:
                continue
            path = segment.log.path
            if path != self._path:
                self._path, self._position = path, 0
            data = disk.peek(path, self._position, segment.size)
            read = 0
            for batch in iterate_batches(data, 0, len(data)):
                read = batch.end
                if batch.base_offset >= self.end:
                    found.append(BatchView(batch.to_bytes(), 0))
            self._position += read
        self.batches += found
        self.end = log.log_end
        return found

    def lose_below(self, start: int, end: int) -> None:
        """A start is about to find nothing sound from `start` on to `end`, which it need not have."""
        lost = [batch for batch in self.batches if start <= batch.base_offset < end]
        if lost:
            self.batches = [batch for batch in self.batches if not start <= batch.base_offset < end]
            self.lost += lost
            self._lost_below += lost

    def cut(self, end: int) -> list[BatchView]:
        """It came back with this end: what was past that is lost, with what was lost below its start.

        The end is in the middle of a batch where the log's own start was, and that batch did not come back.
        """
        lost = [batch for batch in self.batches if batch.last_offset >= end]
        if lost:
            del self.batches[-len(lost) :]
            self.lost += lost
        lost = self._lost_below + lost
        self._lost_below = []
        self.end = min(self.end, end)
        self._path, self._position = "", 0
        return lost


class Written:
    def __init__(self, disk: SimDisk, is_damaged: Callable[[Place], bool]) -> None:
        self.logs: dict[Place, WrittenLog] = {}
        self.recovered: dict[Place, int] = {}
        """Where each log that was there ended when this life of the broker opened it."""
        self.is_stale = False
        """Whether a segment was written to since the last look."""
        self.on_appended: Appended = lambda place, batch: None
        self.on_reopened: Reopened = lambda place, end, kept, lost: None
        self._disk = disk
        self._is_damaged = is_damaged
        self._open: dict[Log, WrittenLog] = {}

    def find(self, place: Place) -> WrittenLog | None:
        return self.logs.get(place)

    def has_lost(self, place: Place, producer_id: int) -> bool:
        """Whether a batch of this producer was there, and went with the power."""
        written = self.logs.get(place)
        return written is not None and any(batch.producer_id == producer_id for batch in written.lost)

    def is_removed(self, place: Place, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch was there, and neither compaction nor retention has left its header.

        Of a broker that died while its answer was on the way nobody can tell what it had: it may be so.
        """
        written = self.logs.get(place)
        wanted = (producer_id, epoch, sequence)
        if written is None or wanted not in map(_identity, written.batches):
            return False
        log = next((log for log, each in self._open.items() if each is written), None)
        if log is None:
            return True
        there = [
            batch
            for segment in log.segments
            for batch in _batches(self._disk.peek(segment.log.path)[: segment.size])
            if batch.last_offset >= log.log_start
        ]
        return wanted not in map(_identity, there)

    def operation(self, operation: str, path: str) -> None:
        if (operation == "write" and path.endswith(".log")) or (operation == "rename" and path.endswith("-future")):
            self.is_stale = True

    def forget(self) -> None:
        """Another disk: what is on it is read anew."""
        self.logs.clear()
        self._open.clear()

    def died(self) -> None:
        self._open.clear()
        self.recovered.clear()

    def look(self, broker: Broker, is_starting: bool) -> None:
        """Follows every log that is open. While the broker starts, one that is seen first has just been recovered."""
        self.is_stale = False
        for place, log in list(broker.partitions.dirs.logs.items()):
            if log not in self._open:
                self._opened(place, log, is_starting)
        for log, written in self._open.items():
            if written.end != log.log_end and not self._is_damaged(written.place):
                for batch in written.read_on(log, self._disk):
                    self.on_appended(written.place, batch)

    def _opened(self, place: Place, log: Log, is_starting: bool) -> None:
        written = self.logs.get(place)
        topic = self._topic(log)
        if written is not None and not is_starting and written.topic == topic:
            self._moved(written, log)
            return
        is_new = written is None or not is_starting
        if written is None or is_new:
            written = self.logs[place] = WrittenLog(place, topic)
            # On another disk than the one that was watched there may be anything.
            written.is_known = not (is_starting and log.log_end > 0)
        self._open[log] = written
        if not is_starting:
            return
        self.recovered[place] = log.log_end
        if self._is_damaged(place):
            return
        if is_new:
            # Of another disk, perhaps: what is there was there before this start, whoever wrote it.
            for batch in written.read_on(log, self._disk):
                self.on_appended(place, batch)
            self.on_reopened(place, log.log_end, written.batches, [])
            return
        lost = written.cut(log.log_end)
        if not log.config.compact and written.is_known:
            self._check_prefix(written, log)
        self.on_reopened(place, log.log_end, written.batches, lost)
        extra = written.read_on(log, self._disk) if written.end != log.log_end else []
        if len(extra) > 1:
            raise Violation(
                "D3 a crash leaves what was written",
                f"{place} came back with {len(extra)} batches past its end, at {extra[0].base_offset} and after",
            )
        for batch in extra:
            self.on_appended(place, batch)

    def _topic(self, log: Log) -> bytes:
        path = f"{log.directory}/partition.metadata"
        return self._disk.peek(path) if self._disk.exists(path) else b""

    def _moved(self, written: WrittenLog, log: Log) -> None:
        """Another log has taken its place."""
        self._open = {each: other for each, other in self._open.items() if other is not written}
        self._open[log] = written
        if self._is_damaged(written.place):
            return
        lost = written.cut(log.log_end)
        if lost:
            raise Violation(
                "D8 a move takes nothing", f"{written.place} ends at {log.log_end}, and {len(lost)} batches are gone"
            )
        if not log.config.compact and written.is_known:
            self._check_prefix(written, log)

    def _check_prefix(self, written: WrittenLog, log: Log) -> None:
        start = log.first_base_offset
        there: list[bytes] = []
        for segment in log.segments:
            there += [batch.to_bytes() for batch in _batches(self._disk.peek(segment.log.path)[: segment.size])]
        expected = [batch.buffer for batch in written.batches if batch.base_offset >= start]
        if there[: len(expected)] != expected:
            at = next(
                (i for i, pair in enumerate(zip(there, expected, strict=False)) if pair[0] != pair[1]), len(there)
            )
            offset = BatchView(expected[at], 0).base_offset
            raise Violation(
                "D3 a crash leaves what was written", f"{written.place}: the batch at {offset} is not the one it had"
            )


def _batches(data: bytes) -> list[BatchView]:
    return list(iterate_batches(data, 0, len(data)))


def _identity(batch: BatchView) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence
