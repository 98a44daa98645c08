"""Who this producer is to the brokers, and which sequence each batch carries, so that nothing is written twice.

A broker takes from a producer id only the next sequence of a partition; it knows the last five batches and answers a
repeated one as if it were new. From that follow the rules here (KIP-98, KIP-360, KAFKA-5494):

- A batch gets its sequence when it is first sent and keeps it when it is sent again. Nothing is sent that is five or
  more batches past the first that is unanswered: else the broker could forget that one and take it for a new one.
- The first batch under a new id or epoch goes alone: a broker that does not know the producer takes any sequence for
  the first, so a second batch must not arrive where the first was refused.
- After a failure batches go out one by one in order, the earliest first: later ones that overtook it are refused by
  the broker with OUT_OF_ORDER_SEQUENCE_NUMBER and wait for their turn.
- Where a sequence was lost (its batch was given up, or the broker has forgotten us) the producer takes a new epoch,
  under which the partition starts at 0 again. It does so only when the first batch that is left is known not to have
  been written, and with it none behind it: one that was sent without an answer is asked about first, with its old
  sequence. So a new epoch never writes a record twice.
- A transactional producer does not bump its epoch by itself: its transaction is aborted, and the coordinator bumps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainstem.client.accumulator import PartitionQueue
from mainstem.client.batches import ProducerBatch, next_sequence
from mainstem.protocol.errors import ErrorCode

EPOCH_MAX: Final = 0x7FFF
REMEMBERED_BATCHES: Final = 5
"""So many of the last batches of a producer a broker knows."""

_DOUBTFUL: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION}
)
"""Codes after which the broker may have the batch all the same."""

_JUDGED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Codes that only a leader gives that looked for the sequence and did not find it: the batch was not written, nor was
any behind it. After any other refusal a doubt about an earlier try remains."""


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
        if queue.bump_wanted or (queue.sequenced and not queue.is_established):
            return False
        if queue.sequenced and queue.next_number - queue.sequenced[0].number >= REMEMBERED_BATCHES:
            return False
        return not (queue.sequenced and self._is_stale(queue))

    def stamp(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Gives a batch that is sent for the first time its sequence."""
        if batch.has_sequence:
            return
        if self._is_stale(queue):
            queue.producer_id, queue.producer_epoch = self.producer_id, self.epoch
            queue.next_sequence = 0
            queue.is_established = False
        batch.producer_id, batch.producer_epoch = queue.producer_id, queue.producer_epoch
        batch.sequence = queue.next_sequence
        queue.next_sequence = next_sequence(batch.sequence, batch.count)
        batch.number = queue.next_number
        queue.next_number += 1
        queue.sequenced.append(batch)

    def acknowledged(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch in queue.sequenced:
            queue.sequenced.remove(batch)
            queue.is_established = True

    def may_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        """Judges an answer that says the batch was refused; whether to send it again."""
        if code in _DOUBTFUL:
            batch.is_doubtful = True
        elif code in _JUDGED:
            batch.is_doubtful = False
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
        """Its parts take its place and its sequences."""
        if batch not in queue.sequenced:
            return
        at = queue.sequenced.index(batch)
        queue.sequenced[at : at + 1] = parts
        for number, each in enumerate(queue.sequenced[at:], batch.number):
            each.number = number
        queue.next_number = queue.sequenced[-1].number + 1

    def bump_where_wanted(self, queues: Iterable[PartitionQueue]) -> bool:
        """Starts partitions anew under the next epoch where that is wanted and safe.

        False when there is no next epoch and a new producer id has to be asked for first.
        """
        bumped = False
        for queue in queues:
            if not queue.bump_wanted or queue.in_flight or (queue.sequenced and queue.sequenced[0].is_doubtful):
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
        queue.is_established = False
        for batch in queue.sequenced:
            batch.is_doubtful = False
            batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
            batch.sequence = queue.next_sequence
            queue.next_sequence = next_sequence(queue.next_sequence, batch.count)
