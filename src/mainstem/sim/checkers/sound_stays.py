"""D3 and D4, by the disk: what a start finds sound in the files of a log it keeps, and nothing else past it.

Which of the bytes that were not synced a power loss has left is known from the disk, past the broker and whatever it
believed to be synced. The start keeps at least the longest prefix of sound batches, each beginning where the one before
it ends; compaction may have left gaps below the recovery point that is written down and below what is called cleaned,
and anywhere where no recovery point is. Where it keeps more, as of a log whose first segments lie below its start, each
batch that it keeps matches its checksum.

Segments that lie below the start of a log need not be whole for that: it keeps what comes after them. What is not sound
there, and in no snapshot of producers, was taken by the power loss like all else: `Written` is told.

Not judged: a log in the middle of a swap, whose beginning may be anywhere; one that is in two directories; and one
whose bytes have changed by themselves.
"""

import contextlib

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import RemoteError
from mainstem.protocol.varint import I64_MAX
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.durable_stays import CHECKPOINT, read_points
from mainstem.sim.checkers.producers_outlive import OFFSET_DIGITS
from mainstem.sim.ledger import Place, Violation, place_of
from mainstem.storage import names
from mainstem.storage.checkpoint import CLEANER_OFFSETS
from mainstem.storage.checkpoint import LOG_STARTS as LOG_STARTS_NAME
from mainstem.storage.snapshot import decode_snapshot

LOG_STARTS = f"/{LOG_STARTS_NAME}"
CLEANED = f"/{CLEANER_OFFSETS}"


class SoundStays(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._ends: dict[Place, tuple[bytes, int]] = {}
        """Of each log that the start is about to find: whose partition it is, and where what is sound ends."""

    def starting(self) -> None:
        """The broker is about to start, with the disk as it is."""
        folders: dict[str, list[str]] = {}
        for path in self.world.disk.files(names.LOG):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        self._ends.clear()
        seen: dict[Place, None] = {}
        for folder, found in folders.items():
            place = place_of(f"{folder}/{found[0]}")
            if place in seen:
                self._ends.pop(place, None)
                continue
            seen[place] = None
            metadata = f"{folder}/partition.metadata"
            is_amid_swap = any(each.endswith((names.CLEANED, names.SWAP)) for each in found)
            if place[1] >= 0 and not is_amid_swap and self.world.disk.exists(metadata):
                segments = [each for each in found if each.endswith(names.LOG)]
                recovery_point = self._point(folder, CHECKPOINT, place)
                end = self._sound_end(folder, segments, self._gaps_until(folder, place))
                topic = self.world.disk.peek(metadata)
                self._ends[place] = (topic, end)
                self._note_loss_below(folder, place, topic, segments, end, recovery_point)

    def _points(self, folder: str, checkpoint: str) -> dict[Place, int]:
        path = folder.rpartition("/")[0] + checkpoint
        return read_points(self.world.disk.peek(path)) if self.world.disk.exists(path) else {}

    def _point(self, folder: str, checkpoint: str, place: Place) -> int:
        return self._points(folder, checkpoint).get(place, 0)

    def _gaps_until(self, folder: str, place: Place) -> int:
        recovery_point = self._points(folder, CHECKPOINT).get(place, I64_MAX)
        return max(recovery_point, self._point(folder, CLEANED, place))

    def _note_loss_below(
        self, folder: str, place: Place, topic: bytes, segments: list[str], sound_end: int, recovery_point: int
    ) -> None:
        log_start = self._point(folder, LOG_STARTS, place)
        bases = [int(name[:OFFSET_DIGITS]) for name in segments]
        begin = max((base for base in bases if base <= log_start), default=0)
        log = self.world.written.find(place)
        if begin <= sound_end or log is None or log.topic != topic or place in self.world.ledger.damaged:
            return
        covered = max((end for end in self._snapshots(folder) if end <= max(begin, recovery_point)), default=0)
        if covered < begin:
            self.world.count("lost below the start of a log")
            log.lose_below(max(sound_end, covered), begin)

    def _snapshots(self, folder: str) -> list[int]:
        """The offsets of those that are whole."""
        found: list[int] = []
        for path in self.world.disk.files(f"{folder}/"):
            name = path.rpartition("/")[2]
            if name.endswith(names.SNAPSHOT):
                with contextlib.suppress(ValueError):
                    decode_snapshot(self.world.disk.peek(path))
                    found.append(int(name[:OFFSET_DIGITS]))
        return found

    def _sound_end(self, folder: str, segments: list[str], gaps_until: int) -> int:
        end, last_epoch = -1, -1
        for name in sorted(segments):
            parsed = names.parse_offset_name(name)
            assert parsed is not None, name
            if end < 0:
                end = parsed[0]
            if parsed[0] != end and not parsed[0] > end < gaps_until:
                return end
            end = parsed[0]
            data = self.world.disk.peek(f"{folder}/{name}")
            read = 0
            try:
                for batch in iterate_batches(data, 0, len(data)):
                    batch.check(len(data))
                    is_next = batch.base_offset == end or batch.base_offset > end < gaps_until
                    if not is_next or batch.leader_epoch < last_epoch:
                        return end
                    end, last_epoch, read = batch.next_offset, batch.leader_epoch, batch.end
            except RemoteError:
                return end
            if read < len(data):
                return end
        return end

    def served(self, broker: Broker) -> None:
        written = self.world.written
        for place, (topic, sound_end) in self._ends.items():
            end = written.recovered.get(place)
            log = written.find(place)
            if end is None or log is None or log.topic != topic or place in self.world.ledger.damaged:
                continue
            if end < sound_end:
                raise Violation(
                    "D3 what is sound on the disk stays",
                    f"{place[0]}-{place[1]} came back with end {end}, and up to {sound_end} its files are sound "
                    f"(life {self.world.process.life})",
                )
            if end > sound_end:
                self._check_sums(place, broker, sound_end)
            self.world.count("end compared with the disk")
        self._ends.clear()

    def _check_sums(self, place: Place, broker: Broker, sound_end: int) -> None:
        log = broker.partitions.dirs.logs.get(place)
        for segment in log.segments if log is not None else ():  # its directory may have failed since
            data = self.world.disk.peek(segment.log.path, 0, segment.size)
            for batch in iterate_batches(data, 0, len(data)):
                if batch.base_offset >= sound_end and batch.computed_crc() != batch.crc:
                    raise Violation(
                        "D4 what is not sound is cut",
                        f"{place[0]}-{place[1]} came back with the batch at {batch.base_offset}, which does not match "
                        f"its checksum (life {self.world.process.life})",
                    )
