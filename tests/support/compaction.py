"""Compacted logs for tests: what they hold by key, and how they are cleaned."""

from mainstem.core.log.config import LogConfig
from mainstem.core.log.producers import Origin
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.records import Record, iterate_records
from mainstem.sim.disk import SimDisk
from mainstem.storage.cleaner import DEFAULT_BUFFER_BYTES, Cleaner
from mainstem.storage.cleaning import Cleaning
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from tests.support.logs import DIRECTORY, NOW_MS, append, config, marker, new_disk, open_in, read_all

PARTITION = ("orders", 0)
DAY_MS = 86_400_000

Written = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def compacted(**settings: str | int) -> LogConfig:
    """A compacted topic whose logs are due as soon as anything is dirty."""
    chosen: dict[str, str | int] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, **settings}
    return config(**chosen)


class CompactedLog:
    """A log on a disk of its own, and its cleaner."""

    def __init__(self, **settings: str | int) -> None:
        """`buffer_bytes` is what the cleaner's map may take; the rest are the topic's settings."""
        buffer_bytes = int(settings.pop("buffer_bytes", DEFAULT_BUFFER_BYTES))
        self.disk: SimDisk = new_disk()
        self.config = compacted(**settings)
        self.files = OpenFiles(self.disk, 1000)
        self.log: Log = open_in(self.disk, self.config, files=self.files)
        self.cleaner = Cleaner(self.files, {}, buffer_bytes)
        self.sequences: dict[int, int] = {}

    def put(self, *pairs: tuple[bytes | None, bytes | None], timestamp: int = NOW_MS, codec: int = 0) -> int:
        """One batch of (key, value); its base offset."""
        return append(self.log, self._build(pairs, timestamp, codec)).base_offset

    def put_as(
        self, producer_id: int, *pairs: tuple[bytes, bytes | None], epoch: int = 0, transactional: bool = False
    ) -> int:
        """The next batch of a producer."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        for key, value in pairs:
            builder.append(NOW_MS, key, value)
        return append(self.log, builder.build()).base_offset

    def end(self, producer_id: int, commit: bool, epoch: int = 0) -> int:
        return append(self.log, marker(producer_id, epoch, commit), origin=Origin.COORDINATOR).base_offset

    def _build(self, pairs: tuple[tuple[bytes | None, bytes | None], ...], timestamp: int, codec: int) -> bytes:
        builder = BatchBuilder(codec=codec)
        for key, value in pairs:
            builder.append(timestamp, key, value)
        return builder.build()

    def roll(self) -> None:
        """Makes everything so far cleanable: inactive and durable."""
        self.log.roll(NOW_MS)
        self.log.flush(NOW_MS)

    def clean(self, now_ms: int = NOW_MS) -> Cleaning | None:
        """One cleaning, if one is due."""
        candidate = self.cleaner.choose({PARTITION: self.log}, now_ms)
        return None if candidate is None else self.cleaner.clean(candidate, now_ms)

    def clean_all(self, now_ms: int = NOW_MS) -> list[Cleaning]:
        """Until nothing is dirty."""
        done: list[Cleaning] = []
        while True:
            cleaning = self.clean(now_ms)
            if cleaning is None:
                return done
            done.append(cleaning)
            assert len(done) < 1000, "the cleaner does not get on"

    def roll_and_clean(self, now_ms: int = NOW_MS) -> Cleaning:
        """The log has to move on by a record, so that there is something dirty."""
        self.put((b"filler", b""))
        self.roll()
        cleaning = self.clean(now_ms)
        assert cleaning is not None
        assert cleaning.is_done, cleaning.failure
        return cleaning

    def reopen(self, clean: bool = False) -> None:
        """A clean stop, or kill -9, and the start after it."""
        recovery_point = self.log.recovery_point
        if clean:
            self.log.close(NOW_MS)
            recovery_point = self.log.recovery_point
        else:
            self.disk.kill()
        self.files = OpenFiles(self.disk, 1000)
        self.log = open_in(
            self.disk, self.config, files=self.files, clean=clean, recovery_point=recovery_point, directory=DIRECTORY
        )
        self.cleaner = Cleaner(self.files, self.cleaner.offsets)

    def records(self) -> list[Record]:
        return records_of(self.log)

    def written(self) -> list[Written]:
        return [(record.offset, record.key, record.value) for record in self.records() if record.key != b"filler"]

    def table(self) -> dict[bytes, bytes]:
        return table_of(self.log)


def records_of(log: Log) -> list[Record]:
    """All records of data, aborted ones too."""
    return [record for batch in read_all(log) if not batch.is_control for record in iterate_records(batch)]


def table_of(log: Log) -> dict[bytes, bytes]:
    """What a consumer of committed records makes of the log: the newest value of each key."""
    table: dict[bytes, bytes] = {}
    for record in committed_of(log):
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


def committed_of(log: Log) -> list[Record]:
    """The records that a consumer with read_committed sees, by the transaction index as a fetch gives it."""
    aborted = log.aborted_transactions(log.log_start, log.last_stable_offset)
    committed: list[Record] = []
    for batch in read_all(log):
        if batch.base_offset >= log.last_stable_offset:
            break
        if batch.is_control:
            continue
        if batch.is_transactional and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
            for each in aborted
        ):
            continue
        committed += list(iterate_records(batch))
    return committed
