"""Who this producer is to the brokers, and which sequence each batch carries, so that nothing is written twice.

A broker takes from a producer id only the next sequence of a partition; it knows the last five batches and answers a
repeated one as if it were new. From that follow the rules here (KIP-98, KIP-360, KAFKA-5494):

- A batch gets its sequence when it is first sent and keeps it when it is sent again. At most five are unanswered.
- After a failure batches go out one by one in order, the earliest first: later ones that overtook it are refused by
  the broker with OUT_OF_ORDER_SEQUENCE_NUMBER and wait for their turn.
- Where a sequence was lost (its batch was given up, or the broker has forgotten us) the producer takes a new epoch,
  under which the partition starts at 0 again. It does so only when every batch that is left is known not to have been
  written: one that was sent without an answer is asked about first, with its old sequence. So a new epoch never
  writes a record twice.
- A transactional producer does not bump its epoch by itself: its transaction is aborted, and the coordinator bumps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainstem.client.accumulator import PartitionQueue
from mainstem.client.batches import ProducerBatch, next_sequence
from mainstem.protocol.errors import ErrorCode

EPOCH_MAX: Final = 0x7FFF
UNANSWERED_MAX: Final = 5

_DOUBTFUL: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION}
)
"""Codes after which the broker may have the batch all the same."""


class Idempotence:
    """The producer's id and epoch; the state of each partition is in its queue."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer_id = -1
        self.epoch = -1

    @property
    def has_id(self) -> bool:
        return self.producer_id >= 0

    def set_id(self, producer_id: int, epoch: int) -> None:
        """A new id or epoch; each partition takes it up when nothing of the old one is unanswered."""
        self.producer_id = producer_id
        self.epoch = epoch

    def _is_stale(self, queue: PartitionQueue) -> bool:
        return queue.producer_id != self.producer_id or queue.producer_epoch != self.epoch

    def may_take(self, queue: PartitionQueue) -> bool:
        """Whether the first batch of the queue may be sent now."""
        first = queue.batches[0]
        if first.has_sequence:
            return queue.sequenced[0] is first and (first.is_doubtful or not queue.bump_wanted)
        if queue.bump_wanted or len(queue.sequenced) >= UNANSWERED_MAX:
            return False
        return not (queue.sequenced and self._is_stale(queue))

    def stamp(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Gives a batch that is sent for the first time its sequence."""
        if batch.has_sequence:
            return
        if self._is_stale(queue):
            queue.producer_id, queue.producer_epoch = self.producer_id, self.epoch
            queue.next_sequence = 0
        batch.producer_id, batch.producer_epoch = queue.producer_id, queue.producer_epoch
        batch.sequence = queue.next_sequence
        queue.next_sequence = next_sequence(batch.sequence, batch.count)
        queue.sequenced.append(batch)

    def acknowledged(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch in queue.sequenced:
            queue.sequenced.remove(batch)

    def may_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        """Judges an answer that says the batch was refused; whether to send it again."""
        batch.is_doubtful = code in _DOUBTFUL
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if queue.sequenced and queue.sequenced[0] is not batch:
                return True
            queue.bump_wanted = not self.is_transactional
            return not self.is_transactional
        if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH) and not self.is_transactional:
            queue.bump_wanted = True
            return True
        return ErrorCode(code).retriable if code in ErrorCode._value2member_map_ else False

    def given_up(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch will not be sent again. Its sequence is lost, if it had one."""
        if batch in queue.sequenced:
            queue.sequenced.remove(batch)
            queue.bump_wanted = not self.is_transactional

    def split(self, queue: PartitionQueue, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        if batch in queue.sequenced:
            at = queue.sequenced.index(batch)
            queue.sequenced[at : at + 1] = parts

    def bump_where_wanted(self, queues: Iterable[PartitionQueue]) -> bool:
        """Starts partitions anew under the next epoch where that is wanted and safe.

        False when there is no next epoch and a new producer id has to be asked for first.
        """
        bumped = False
        for queue in queues:
            if not queue.bump_wanted or queue.in_flight or any(batch.is_doubtful for batch in queue.sequenced):
                continue
            if not bumped:
                if self.epoch >= EPOCH_MAX:
                    self.producer_id = -1
                    return False
                self.epoch += 1
                bumped = True
            queue.bump_wanted = False
            self.start_anew(queue)
        return True

    def start_anew(self, queue: PartitionQueue) -> None:
        """The partition's batches from sequence 0, under the present id and epoch."""
        queue.producer_id, queue.producer_epoch = self.producer_id, self.epoch
        queue.next_sequence = 0
        for batch in queue.sequenced:
            batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
            batch.sequence = queue.next_sequence
            queue.next_sequence = next_sequence(queue.next_sequence, batch.count)
