"""Batches as a cleaner leaves them, made in one go: what Kafka's goldens and other readers are held against."""

from collections.abc import Callable

from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder, empty_batch
from mainstem.protocol.records import Record, iterate_records


def retain(
    batch: BatchView,
    keep: Callable[[Record], bool],
    delete_horizon: int | None = None,
    keep_empty: bool = False,
) -> bytes | None:
    """The batch with only the records that `keep` says yes to, at their offsets and with their timestamps.

    `delete_horizon` is set on a batch that has none; one that it has stays. None if no record is kept, or a batch
    without records with `keep_empty`. A batch that keeps everything and gets no horizon comes back as it was.
    """
    sets_horizon = delete_horizon is not None and not batch.has_delete_horizon
    horizon = batch.base_timestamp if batch.has_delete_horizon else delete_horizon
    kept = [record for record in iterate_records(batch) if keep(record)]
    if not kept:
        return empty_batch(batch) if keep_empty else None
    if len(kept) == batch.record_count and not sets_horizon:
        return batch.to_bytes()
    builder = BatchBuilder(
        codec=batch.codec,
        base_offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        leader_epoch=batch.leader_epoch,
        log_append_time=batch.max_timestamp if batch.is_log_append_time else None,
        delete_horizon=horizon,
    )
    for record in kept:
        builder.append_at(record.offset, record.timestamp, record.key, record.value, record.headers)
    return builder.build(batch.last_offset)
