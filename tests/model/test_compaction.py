"""Any log, after any cleanings, restarts and crashes, says the same by key (C1, C3, C4, C6).

Random operations drive a compacted log on a simulated disk. Beside it, what every committed record ever said is kept
as a plain table. After each operation, replaying the log as a consumer of committed records gives that table; offsets
that survive hold what was written there; and producers go on where they were.
"""

from random import Random

import pytest

from mainstem.core.log.producers import Origin
from mainstem.protocol.builder import BatchBuilder
from mainstem.sim.disk import SimDisk
from mainstem.storage.cleaner import Candidate, Cleaner
from mainstem.storage.open_files import OpenFiles
from tests.support.compaction import PARTITION, committed_of, compacted, records_of, table_of
from tests.support.log_files import check_folder
from tests.support.logs import DIRECTORY, NOW_MS, file_contents, make_directory, marker, open_in

SETTINGS = ({"segment_bytes": 600}, {"segment_bytes": 3000, "index_interval_bytes": 200})
PRODUCERS = (7, 8, 9)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = NOW_MS
        self.config = compacted(delete_retention_ms=self.rng.choice([0, 1000, 100_000]), **self.rng.choice(SETTINGS))
        self.buffer_bytes = self.rng.choice([24 * 3, 24 * 10, 1 << 20])
        self.disk = SimDisk(self.rng, lambda: self.now_ms)
        make_directory(self.disk, DIRECTORY)
        self.disk.sync_directory("/")
        self.disk.sync_directory("/data")
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.committed: dict[int, tuple[bytes, bytes | None]] = {}
        self.open: dict[int, list[int]] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.checkpoint: dict[tuple[str, int], int] = {}
        self.recovery_point = 0
        self.cleanings = 0
        self._open_log()
        self.log.flush(self.now_ms)

    def _open_log(self, clean: bool = False) -> None:
        self.files = OpenFiles(self.disk, 12)
        self.log = open_in(
            self.disk,
            self.config,
            clean=clean,
            recovery_point=self.recovery_point,
            now_ms=self.now_ms,
            files=self.files,
        )
        self.log.update_high_watermark(self.log.log_end)
        self.cleaner = Cleaner(self.files, self.checkpoint, self.buffer_bytes)

    # Operations

    def append(self) -> None:
        producer = self.rng.choice([-1, -1, *PRODUCERS])
        transactional = producer in self.open or (producer >= 0 and self.rng.random() < 0.5)
        count = self.rng.randint(1, 6)
        builder = BatchBuilder(
            codec=self.rng.choice([0, 0, 0, 1, 2, 3, 4]),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences.get(producer, -1),
            transactional=transactional,
        )
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key = b"k%d" % self.rng.randrange(12)
            value = None if self.rng.random() < 0.25 else self.rng.randbytes(self.rng.randrange(40))
            builder.append(self.now_ms + self.rng.randint(-50, 50), key, value)
            pairs.append((key, value))
        data = builder.build()
        base = self.log.append_as_leader(data, 0, len(data), 0, self.now_ms).base_offset
        self.log.update_high_watermark(self.log.log_end)
        offsets = list(range(base, base + count))
        self.written.update(zip(offsets, pairs, strict=True))
        if producer >= 0:
            self.sequences[producer] += count
        if transactional:
            self.open.setdefault(producer, []).extend(offsets)
        else:
            self.committed.update({offset: self.written[offset] for offset in offsets})

    def end_transaction(self) -> None:
        if not self.open:
            return
        producer = self.rng.choice(list(self.open))
        commit = self.rng.random() < 0.6
        data = marker(producer, 0, commit, timestamp=self.now_ms)
        self.log.append_as_leader(data, 0, len(data), 0, self.now_ms, Origin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end)
        offsets = self.open.pop(producer)
        if commit:
            self.committed.update({offset: self.written[offset] for offset in offsets})

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush(self.now_ms)
        self.recovery_point = self.log.recovery_point

    def choose(self) -> Candidate | None:
        """As a broker does: an index that the cleaner has missed is built before it looks again."""
        while (job := self.log.begin_reindexing()) is not None:
            job.run()
            self.log.finish_reindexing(job)
        found = self.cleaner.choose({PARTITION: self.log}, self.now_ms)
        return self.choose() if found is None and self.log.damaged_indexes else found

    def clean(self, quietly: bool = False) -> None:
        candidate = self.choose()
        if candidate is None:
            return
        self.cleanings += 1
        cleaning = self.cleaner.begin(candidate, self.now_ms)
        gives_up = not quietly and self.rng.random() < 0.15
        while cleaning.turn(self.now_ms):
            while cleaning.step(records_max=self.rng.choice([1, 20, 1000])):
                if not quietly and self.rng.random() < 0.05:
                    self.append()
            if gives_up and self.rng.random() < 0.2:
                break
        self.cleaner.end(PARTITION)
        assert not self.cleaner.uncleanable
        if self.rng.random() < 0.7:
            self.checkpoint = self.cleaner.checkpoint([PARTITION])

    def wait(self) -> None:
        self.now_ms += self.rng.choice([1, 500, 2000, 200_000])
        for job in self.log.due_removals(self.now_ms):
            job.run()

    def kill(self) -> None:
        self.disk.kill()
        self._open_log()

    def restart(self) -> None:
        self.log.close(self.now_ms)
        self.recovery_point = self.log.recovery_point
        self._open_log(clean=True)

    def lose_power(self) -> None:
        """Everything acknowledged here was flushed before, so nothing of it may go."""
        self.log.flush(self.now_ms)
        self.recovery_point = self.log.recovery_point
        if self.rng.random() < 0.5:
            self._lose_power_while_cleaning()
        self.disk.power_loss(self.rng)
        self._open_log()

    def _lose_power_while_cleaning(self) -> None:
        candidate = self.choose()
        if candidate is None:
            return
        disks: list[SimDisk] = []
        self.disk.after_change = lambda disk: disks.append(disk.fork()) if self.rng.random() < 0.2 else None
        self.cleaner.clean(candidate, self.now_ms)
        self.disk.after_change = None
        if disks:
            self.disk.restore(self.rng.choice(disks))

    # Checks

    def check(self) -> None:
        stable = self.log.last_stable_offset
        # What is committed but lies behind an open transaction is not to be seen yet.
        expected: dict[bytes, bytes] = {}
        for offset in sorted(self.committed):
            key, value = self.committed[offset]
            if offset < stable:
                expected.pop(key, None)
                if value is not None:
                    expected[key] = value
        assert table_of(self.log) == expected
        offsets = [record.offset for record in records_of(self.log)]
        assert offsets == sorted(set(offsets))
        for record in records_of(self.log):
            assert self.written[record.offset] == (record.key, record.value)
        assert all(record.offset in self.committed for record in committed_of(self.log))

    def finish(self) -> None:
        """Once all is cleaned, one record a key is left of what was cleaned."""
        while self.open:
            self.end_transaction()
        self.append()
        while self.open:
            self.end_transaction()
        self.roll()
        for _ in range(200):
            self.now_ms += 200_000
            if self.choose() is None:
                break
            self.clean(quietly=True)
        assert self.choose() is None
        self.check()
        keys = [record.key for record in records_of(self.log)]
        assert len(keys) == len(set(keys))
        for job in self.log.due_removals(self.now_ms + (1 << 40)):
            job.run()
        self.log.close(self.now_ms)
        check_folder(file_contents(self.disk), complete=False, from_the_start=False)


OPERATIONS = (
    [World.append] * 10
    + [World.end_transaction] * 4
    + [World.roll] * 3
    + [World.clean] * 4
    + [World.wait, World.kill, World.restart, World.lose_power]
)


def run(seed: int, count: int) -> int:
    world = World(seed)
    for number in range(count):
        operation = world.rng.choice(OPERATIONS)
        try:
            operation(world)
            world.check()
        except Exception as error:
            error.add_note(f"seed {seed}, operation {number}: {operation.__name__}")
            raise
    world.finish()
    return world.cleanings


@pytest.mark.parametrize("seed", range(6))
def test_a_log_says_the_same_however_it_was_cleaned(seed: int) -> None:
    assert run(seed, 60) > 0


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_many_logs_say_the_same_however_they_were_cleaned() -> None:
    assert sum(run(seed, 200) for seed in range(100, 400)) > 1000
