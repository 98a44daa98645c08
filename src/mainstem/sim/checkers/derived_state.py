"""D6: what is kept beside a log says the same as the log: rebuilt from the batches alone, it comes out equal.

At the end the disk is copied, everything but the segments is taken away from the copy, and the logs are opened from it:
epochs and, where nothing was removed or compacted, producers must be those of the broker. Without
asking our own code, every batch must lie in the epoch that its header names (P9), and a snapshot of producers may know
of nothing at or past its offset.
"""

from mainstem.broker.app import Broker
from mainstem.broker.partition import Partition
from mainstem.core.log.producers import ProducerStates
from mainstem.protocol.batch import iterate_batches
from mainstem.sim.checkers import Checker
from mainstem.sim.disk import SimDisk
from mainstem.sim.ledger import Violation
from mainstem.storage.checkpoint import read_file
from mainstem.storage.log import Log
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import open_log
from mainstem.storage.snapshot import decode_snapshot


class DerivedState(Checker):
    def at_end(self, broker: Broker) -> None:
        disk = self.world.disk.fork()
        for partition in broker.partitions:
            log = partition.log
            if (partition.topic, partition.index) in self.world.ledger.damaged:
                continue
            for name in disk.list_directory(log.directory):
                if not name.endswith(".log") and name != "partition.metadata":
                    disk.remove(f"{log.directory}/{name}")
            now_ms = self.world.process.clock.wall_ms()
            # Past its recovery point a gap in a log means a loss, and compaction leaves gaps.
            recovery_point = log.recovery_point if log.config.compact else 0
            files = OpenFiles(disk, 20)
            rebuilt = open_log(files, log.directory, log.config, now_ms, log.log_start, recovery_point)
            self._check_snapshots(str(partition), log.directory)
            if partition.topic == "log":
                self._check_epochs(str(partition), log, disk)
            self._compare(partition, log, rebuilt, log.config.compact)

    def _check_snapshots(self, name: str, directory: str) -> None:
        disk = self.world.disk
        for each in disk.list_directory(directory):
            if not each.endswith(".snapshot"):
                continue
            try:
                producers = decode_snapshot(read_file(disk, f"{directory}/{each}"))
            except ValueError:
                continue  # torn by a power loss; whoever loads it goes on to an older one
            ahead = [one.producer_id for one in producers if one.last_offset >= int(each.removesuffix(".snapshot"))]
            if ahead:
                raise Violation("D6 a snapshot is not ahead", f"{name}: {each} knows what {ahead} wrote past it")

    def _check_epochs(self, name: str, log: Log, disk: SimDisk) -> None:
        for each in disk.list_directory(log.directory):
            if each.endswith(".log"):
                data = read_file(disk, f"{log.directory}/{each}")
                for batch in iterate_batches(data, 0, len(data)):
                    known = log.epochs.epoch_for(batch.base_offset)
                    if known != batch.leader_epoch:
                        raise Violation(
                            "P9 epochs match the batches",
                            f"{name}: the batch at {batch.base_offset} is of epoch {batch.leader_epoch}, not {known}",
                        )

    def _compare(self, partition: Partition, log: Log, rebuilt: Log, compacted: bool) -> None:
        name = str(partition)
        if rebuilt.log_end != log.log_end:
            raise Violation("D6 derived state", f"{name}: rebuilt it ends at {rebuilt.log_end}, not {log.log_end}")
        # An epoch without a batch is known to the file only.
        batches = [(each.epoch, each.start_offset) for each in rebuilt.epochs.entries()]
        known = [(each.epoch, each.start_offset) for each in log.epochs.entries()]
        # The file may have been cut when the log start moved, and the log start be lost with the power.
        first = known[0][1] if known else 0
        missing = [each for each in batches if each not in known and each[1] > first]
        if missing and not compacted:
            raise Violation("D6 derived state", f"{name}: epochs {missing} are in the log but not in {known}")
        if log.log_start == 0 and not compacted and name.startswith("log-"):
            ours, theirs = _producers(log.producers.states), _producers(rebuilt.producers.states)
            for producer_id in [each for each in theirs if each not in ours]:
                if self.world.appended_once.may_be_forgotten((partition.topic, partition.index), producer_id):
                    del theirs[producer_id]
            if ours != theirs:
                raise Violation("D6 derived state", f"{name}: producers are {ours}, rebuilt {theirs}")


def _producers(states: ProducerStates) -> dict[int, tuple[int, int, int]]:
    return {each.producer_id: (each.epoch, each.last_sequence, each.last_offset) for each in states.all()}
