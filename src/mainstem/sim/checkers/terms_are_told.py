"""P9, as clients are told it (KIP-320): where each leader's term ends, and in which term an offset was written.

Judged by the batches on the disk, past the broker and its file of leader epochs. A term ends where the next one begins.
One without a batch, because nobody wrote in it or because compaction took all of it, is known to the broker alone, and
begins somewhere between the two that have some. Where nothing was compacted these touch, and one answer is right.
"""

from collections.abc import Sequence

from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.sim.disk import SimDisk
from mainstem.sim.ledger import Violation
from mainstem.storage.log import Log


def batches_of(disk: SimDisk, log: Log) -> list[BatchView]:
    """Those that somebody may read."""
    found: list[BatchView] = []
    for segment in log.segments:
        data = disk.peek(segment.log.path)[: segment.size]
        found += [each for each in iterate_batches(data, 0, len(data)) if each.next_offset > log.log_start]
    return found


def known_from(log: Log, may_trim: bool) -> int:
    """From which offset on a log knows its terms: a power loss may take a start that they were cut at, and of what is
    before that then nobody is told a term, in Kafka neither."""
    first = log.epochs.earliest
    return max(log.log_start, first.start_offset) if first is not None and may_trim else log.log_start


def check_end(
    where: str, batches: Sequence[BatchView], span: tuple[int, int], asked: int, told: tuple[int, int]
) -> None:
    """`told` is the epoch and the end that somebody was told who asked for a term before the one in force; `span` is
    where the log begins, and where it ended then."""
    start, end = span
    older = [each for each in batches if each.leader_epoch <= asked]
    newer = [each for each in batches if each.leader_epoch > asked]
    earliest = older[-1].next_offset if older else start
    latest = max(newer[0].base_offset, start) if newer else end
    epoch = older[-1].leader_epoch if older else 0
    if not epoch <= told[0] <= asked or not earliest <= told[1] <= latest:
        raise Violation(
            "P9 a term ends where the next begins",
            f"{where}: epoch {asked} is said to be {told[0]} and to end at {told[1]}; by the batches epoch "
            f"{epoch} ends at {earliest} or after, and the next begins at {latest} or before",
        )


def check_epoch(where: str, batches: Sequence[BatchView], known: int, offset: int, told: int) -> bool:
    """Whether anybody can tell: compaction and retention may have taken the batch meanwhile. `known` is where the log
    begins to know its terms."""
    for batch in batches:
        if known <= offset and batch.base_offset <= offset < batch.next_offset:
            if told != batch.leader_epoch:
                raise Violation(
                    "P9 an offset has the epoch of its batch",
                    f"{where}: {offset} is said to be of epoch {told}, its batch is of {batch.leader_epoch}",
                )
            return True
    return False
