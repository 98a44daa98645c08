"""D3, by the disk: what a start finds sound in the files of a log it keeps.

Which of the bytes that were not synced a power loss has left is known from the disk, past the broker and whatever it
believed to be synced. The start keeps at least the longest prefix of sound batches, each beginning where the one before
it ends; below the recovery point that is written down compaction may have left gaps.

Not judged: a log in the middle of a swap, whose beginning may be anywhere; one that is in two directories; and one
whose bytes have changed by themselves.
"""

from mainstem.broker.app import Broker
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.errors import RemoteError
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.durable_stays import CHECKPOINT, read_points
from mainstem.sim.ledger import Place, Violation, place_of
from mainstem.storage import names


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
                end = self._sound_end(folder, segments, self._recovery_point(folder.rpartition("/")[0], place))
                self._ends[place] = (self.world.disk.peek(metadata), end)

    def _recovery_point(self, directory: str, place: Place) -> int:
        path = f"{directory}{CHECKPOINT}"
        return read_points(self.world.disk.peek(path)).get(place, 0) if self.world.disk.exists(path) else 0

    def _sound_end(self, folder: str, segments: list[str], recovery_point: int) -> int:
        end, last_epoch = -1, -1
        for name in sorted(segments):
            parsed = names.parse_offset_name(name)
            assert parsed is not None, name
            if end < 0:
                end = parsed[0]
            if parsed[0] != end and not parsed[0] > end < recovery_point:
                return end
            end = parsed[0]
            data = self.world.disk.peek(f"{folder}/{name}")
            read = 0
            try:
                for batch in iterate_batches(data, 0, len(data)):
                    batch.check(len(data))
                    is_next = batch.base_offset == end or batch.base_offset > end < recovery_point
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
            self.world.count("end compared with the disk")
        self._ends.clear()
