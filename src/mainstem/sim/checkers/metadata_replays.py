"""R11: the metadata that a broker comes back with is the metadata it had, whether from a snapshot or from the log.

At the end the image is made anew from the files, past the broker: from the log alone where it still begins at the
beginning, and from one of the snapshots with what comes after it. Each must be the broker's own image, byte for byte.
R8: the log begins at or before the end of a snapshot, or at the beginning; looked at whenever its start has moved.
R5: nothing is committed before it is durable; looked at after each step.
"""

from random import Random
from typing import Final

from mainstem.broker.app import Broker
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.messages.record_framing import decode_metadata_record
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation
from mainstem.storage.metadata_snapshot import decode_snapshot, parse_file_name

FOLDER = "/__cluster_metadata-0/"
REACHED: Final = ("metadata retention moved the start",)
"""Rare branches that each campaign must have taken."""


class MetadataReplays(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._topics: dict[str, bytes] = {}
        self._followed = -1
        self._start = -1
        """The furthest that the log was seen to begin."""

    def forget(self) -> None:
        self._topics.clear()
        self._followed = -1
        self._start = -1

    def after_step(self, broker: Broker) -> None:
        if broker._quorum.published_end != self._followed:
            self._followed = broker._quorum.published_end
            self._topics = {name: topic.topic_id for name, topic in broker.image.topics.items()}
        log = broker._quorum._log
        if log is None:
            return
        if log.high_watermark > log.recovery_point:
            raise Violation(
                "R5 committed metadata is durable",
                f"it is committed up to {log.high_watermark}, and synced up to {log.recovery_point}",
            )
        if log.log_start > self._start:
            self._check_start(log.log_start, self._snapshots())
            if self._start >= 0:
                self.world.count(REACHED[0])
            self._start = log.log_start

    def served(self, broker: Broker) -> None:
        if self._followed >= 0:
            if broker._quorum.published_end < self._followed:
                raise Violation(
                    "R5 committed metadata stays", f"{self._followed} was published, {broker._quorum.published_end} is"
                )
            # What was committed but not yet published when the broker died may have come or gone since.
            gone = [name for name, topic_id in self._topics.items() if topic_id not in broker.image.topics_by_id]
            if gone and not self.world.may_be_gone(gone):
                raise Violation("R11 metadata is replayed", f"topics {gone} are gone after a restart")
        if not is_same(broker._quorum.image, broker._controller.image) and not _is_under_way(broker):
            raise Violation("R11 metadata is replayed", "the controller's image and the broker's differ after a start")

    def at_end(self, broker: Broker) -> None:
        self._check_files(broker)
        for name, there in self.world.admin_topics().items():
            if there is not None and there != (name in broker.image.topics):
                raise Violation(
                    "R11 metadata is replayed",
                    f"topic {name} {'was created and is missing' if there else 'was deleted and is there'}",
                )

        wanted = self.world.admin_settings()
        partition = broker.partitions.get("log", 0)
        if wanted is not None and partition is not None:
            found = partition.log.config.max_message_bytes
            if str(found) != wanted:
                raise Violation("R11 metadata is replayed", f"max.message.bytes was set to {wanted}, a log has {found}")
            self.world.count("setting checked")

    def _snapshots(self) -> dict[int, str]:
        """Those on the disk, by what they cover."""
        found: dict[int, str] = {}
        for path in self.world.disk.files(FOLDER):
            snapshot = parse_file_name(path.rpartition("/")[2])
            if snapshot is not None:
                found[snapshot.end_offset] = path
        return found

    def _check_start(self, start: int, snapshots: dict[int, str]) -> None:
        if start > max(snapshots, default=0):
            raise Violation("R8 a snapshot covers what is gone", f"the log begins at {start}: {sorted(snapshots)}")

    def _check_files(self, broker: Broker) -> None:
        quorum = broker._quorum
        if _is_under_way(broker):
            return
        log = quorum._opened
        disk = self.world.disk
        paths = ({0: ""} if log.log_start == 0 else {}) | self._snapshots()
        self._check_start(log.log_start, paths)
        chosen = {min(paths), Random(f"{self.world.seed}:snapshot").choice(sorted(paths))}
        starts: dict[int, list[bytes]] = {}
        for end_offset in sorted(chosen):
            path = paths[end_offset]
            starts[end_offset] = list(decode_snapshot(path, disk.peek(path)).values) if path else []
            if end_offset > 0:
                self.world.count("metadata replayed from a snapshot")
        batches = []
        for segment in log.segments:
            data = disk.peek(segment.log.path)[: segment.size]
            batches += [each for each in iterate_batches(data, 0, len(data)) if not each.is_control]
        for end_offset, values in starts.items():
            if end_offset < log.log_start:
                continue
            image = ClusterImage()
            for value in values:
                image.replay(decode_metadata_record(value)[0])
            for batch in batches:
                if batch.base_offset >= end_offset:
                    for record in iterate_records(batch):
                        assert record.value is not None
                        image.replay(decode_metadata_record(record.value)[0])
            if not is_same(image, quorum.image):
                raise Violation(
                    "R11 metadata is replayed", f"from offset {end_offset} on it comes out other than the broker has it"
                )


def is_same(one: ClusterImage, other: ClusterImage) -> bool:
    """Byte for byte. Records with equal values have equal bytes, so that none are made where all values are equal."""
    return list(one.to_records()) == list(other.to_records()) or (
        list(one.encoded_records()) == list(other.encoded_records())
    )


def _is_under_way(broker: Broker) -> bool:
    """Whether something is on its way into the broker's image."""
    return bool(broker._quorum._committed) or broker._quorum.machine.log_end != broker._quorum.published_end
