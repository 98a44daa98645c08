"""What a reader of committed records must be given of a part of a log, by the batches and markers as they were written.

`G1a` where it was given more; `poll-skip` where it was given less: a broker that lists too many aborted transactions
has its readers leave out what is committed. Jepsen's `int-` stands before the names inside a transaction.
"""

from bisect import bisect_left
from typing import TYPE_CHECKING

from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.protocol.records import iterate_records
from mainstem.sim.ledger import Place, Violation

if TYPE_CHECKING:
    from mainstem.sim.world import World

Given = list[tuple[int, bytes]]
"""Offsets and values."""


def committed_between(batches: list[BatchView], first: int, upper: int) -> Given:
    """The committed records from `first` on, below `upper`, which must be stable."""
    waiting: dict[int, Given] = {}
    found: Given = []
    for batch in batches[bisect_left(batches, first, key=_last_offset) :]:
        if batch.base_offset >= upper and not waiting:
            break
        if batch.is_control:
            marker = parse_end_marker(batch)
            if marker is not None:
                held = waiting.pop(batch.producer_id, [])
                found += held if marker.commit else []
        elif batch.base_offset < upper:
            records = [
                (each.offset, each.value)
                for each in iterate_records(batch)
                if each.value is not None and first <= each.offset < upper
            ]
            if batch.is_transactional:
                waiting.setdefault(batch.producer_id, []).extend(records)
            else:
                found += records
    return sorted(found)


def check_given(world: "World", place: Place, first: int, upper: int, given: Given, life: int, within: str) -> None:
    """What a poll from `first` to `upper` brought is what is committed there. Compaction may have taken some of it."""
    written = world.written.find(place)
    if written is None or not written.is_known or world.is_keyed(place[0]) or life != world.process.life:
        return
    if place in world.ledger.damaged:
        return
    wanted = committed_between(written.batches, first, upper)
    if given != wanted:
        extra = [each for each in given if each not in wanted]
        missing = [each for each in wanted if each not in given]
        raise Violation(
            f"{within}{'G1a' if extra else 'poll-skip' if missing else 'nonmonotonic-poll'}",
            f"{place[0]}-{place[1]}: from {first} to {upper} a reader was given {extra} too much, {missing} too little",
        )
    world.count("committed poll checked")


def _last_offset(batch: BatchView) -> int:
    return batch.last_offset
