"""Bringing producer state up to an offset by reading the batches after the newest snapshot.

Only headers are read, and the one record of a marker. What is in the log was checked when it was appended.
"""

from mypy_extensions import i64

from mainstem.core.log.producers import CompletedTransaction, ProducerStates
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import parse_end_marker
from mainstem.storage.producer_store import ProducerStore
from mainstem.storage.scan import HeaderScan
from mainstem.storage.segment import Segment


def apply_batch(states: ProducerStates, batch: BatchView) -> CompletedTransaction | None:
    """Applies one whole batch; the transaction that it ended, which the caller must `complete`."""
    completed: CompletedTransaction | None = None
    producer_id: i64 = batch.producer_id
    if producer_id >= 0:
        if not batch.is_control:
            states.apply_data(
                producer_id,
                batch.producer_epoch,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.is_transactional,
            )
        else:
            marker = parse_end_marker(batch)
            if marker is not None:
                completed = states.apply_marker(
                    producer_id,
                    batch.producer_epoch,
                    marker.coordinator_epoch,
                    not marker.commit,
                    batch.base_offset,
                    batch.max_timestamp,
                )
    states.end_offset = batch.next_offset
    return completed


def replay_producers(segments: list[Segment], store: ProducerStore, log_end: i64, snapshot_segments: bool) -> None:
    """From `states.end_offset` to `log_end`. With `snapshot_segments`, snapshots of the last two segments are left."""
    states = store.states
    worth_keeping = [segment.base_offset for segment in segments[-2:]] if snapshot_segments else []
    at: i64 = 0
    while at + 1 < len(segments) and segments[at + 1].base_offset <= states.end_offset:
        at += 1
    while at < len(segments) and states.end_offset < log_end:
        segment = segments[at]
        start: i64 = max(segment.base_offset, states.end_offset)
        if start >= log_end:
            break
        states.end_offset = start
        if start in worth_keeping:
            store.take_snapshot(sync=False)
        _replay_segment(segment, states, start, log_end)
        at += 1
    states.end_offset = log_end


def _replay_segment(segment: Segment, states: ProducerStates, start: i64, log_end: i64) -> None:
    found = segment.locate(start)
    if found is None:
        return
    log = segment.log.pin()
    try:
        scan = HeaderScan(log, found.position, segment.size, False)
        while scan.advance():
            header = scan.header
            if header.base_offset >= log_end:
                return
            batch = header
            if header.is_control:
                batch = BatchView(log.read_at(scan.position, scan.size), 0)
            completed = apply_batch(states, batch)
            if completed is not None:
                states.complete(completed)
    finally:
        segment.log.unpin()
