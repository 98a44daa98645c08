"""T1: what a partition knows of a producer outlives the batches that told it.

Retention and DeleteRecords take batches away; a start that finds only what is left of the log has to know their
producers all the same, by its snapshots: or a copy of a batch that is gone would be taken for a new one (KAFKA-9892).
Judged when a broker is back, by the batches as they were written: those that a power loss took do not count.

A start finds whole what stands for batches that are gone: the snapshot at the offset where the files begin. But for one
that a start before has written itself: that says what the batches said that were still there, and may be lost again.
Nor does one count in a copy that has not taken its partition's place yet: the log that it is a copy of is there.

Left out are a log that came back with nothing in it, because what was left ended before its own start; damaged ones;
runs with a disk that has failed, whose syncs prove nothing; and runs in which producers are forgotten on purpose.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.partition_folder import COPY
from mainstem.storage.snapshot import decode_snapshot

OFFSET_DIGITS = 20
AT_ZERO = "0" * OFFSET_DIGITS


class ProducersOutlive(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._found: dict[str, bytes] = {}
        """The snapshots as the last start has found them."""
        self._by_start: dict[str, bytes] = {}
        """Those that a start has written, and nobody since."""
        self._emptied: dict[Place, int] = {}
        """Where logs began that came back with nothing in them: what was before that is not known."""
        self._has_served = False

    def forget(self) -> None:
        self._emptied.clear()
        self._by_start.clear()
        self._has_served = False

    @property
    def by_start(self) -> dict[str, bytes]:
        """The snapshots, with what is in them, that may be lost again: a start has written them, and nobody since."""
        return dict(self._by_start)

    def expect(self, by_start: dict[str, bytes]) -> None:
        """The broker comes back with a copy of its disk, and what was only cached on that may be lost."""
        self._by_start = by_start

    def starting(self) -> None:
        """The broker is about to start, with the disk as it is."""
        found = self._snapshots()
        for path, data in found.items() if self._has_served and not self.world.had_disk_error else ():
            folder, _, name = path.rpartition("/")
            logs = [each.rpartition("/")[2] for each in self.world.disk.files(f"{folder}/") if each.endswith(".log")]
            first = min(logs, default=AT_ZERO)
            if name[:OFFSET_DIGITS] != first[:OFFSET_DIGITS] or first.startswith(AT_ZERO) or path in self._by_start:
                continue
            if self.world.disk.exists(f"{folder}/{COPY}"):
                continue
            self.world.count("snapshot for what is gone looked at")
            try:
                decode_snapshot(data)
            except ValueError as error:
                raise Violation(
                    "T1 a snapshot is there for what is gone", f"{path}, where the log's files begin: {error}"
                ) from None
        self._by_start = {path: data for path, data in self._by_start.items() if found.get(path) == data}
        self._found, self._has_served = found, False

    def _snapshots(self) -> dict[str, bytes]:
        disk = self.world.disk
        found: dict[str, bytes] = {}
        for path in disk.files(".snapshot"):
            topic, _, index = path.split("/")[-2].rpartition("-")
            if not path.endswith(".snapshot") or not index.isdigit() or not self.world.may_trim(topic):
                continue
            if (topic, int(index)) not in self.world.ledger.damaged:
                found[path] = disk.peek(path)
        return found

    def served(self, broker: Broker) -> None:
        self._has_served = True
        self._by_start = {
            path: data
            for path, data in self._snapshots().items()
            if self._found.get(path) != data or self._by_start.get(path) == data
        }
        if self.world.producers_expire or self.world.had_disk_error:
            return
        for partition in broker.partitions:
            place = (partition.topic, partition.index)
            written = self.world.written.find(place)
            log = partition.log
            if not self.world.may_trim(place[0]) or place in self.world.ledger.damaged or log.failure is not None:
                continue
            if log.size == 0:
                self._emptied[place] = log.log_start
                continue
            if written is None or not written.is_known:
                continue
            first = self._emptied.get(place, 0)
            last = {
                each.producer_id: each
                for each in written.batches
                if each.producer_id >= 0 and each.last_offset >= first
            }
            for producer_id, batch in last.items():
                known = log.producers.states.get(producer_id)
                # A marker has no sequence.
                sequence = -1 if known is None or batch.is_control else known.last_sequence
                if known is None or (known.epoch, sequence) != (batch.producer_epoch, batch.last_sequence):
                    found = "nothing" if known is None else f"epoch {known.epoch}, sequence {known.last_sequence}"
                    raise Violation(
                        "T1 a producer is known after a start",
                        f"{partition}: producer {producer_id} wrote up to sequence {batch.last_sequence} of epoch "
                        f"{batch.producer_epoch}, at {batch.last_offset}; known is {found}; the log starts at "
                        f"{log.log_start}, its files at {log.first_base_offset}",
                    )
                if batch.last_offset < log.first_base_offset:
                    self.world.count("producer known by a snapshot alone")
