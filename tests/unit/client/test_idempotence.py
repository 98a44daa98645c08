"""Sequences, against a model of a partition that judges them as a broker does, over links that lose things."""

import random

import pytest

from mainstem.client.accumulator import PartitionQueue
from mainstem.client.batches import ProducerBatch
from mainstem.client.idempotence import Idempotence
from mainstem.protocol.errors import ErrorCode


class Partition:
    """What a broker keeps of one producer: the last five batches, and which sequence is next."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epoch = -1
        self.next = 0
        self.last: list[tuple[int, int]] = []

    def append(self, epoch: int, sequence: int, values: list[int]) -> int:
        """The error code, 0 for written, now or before."""
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == self.epoch and (sequence, len(values)) in self.last:
            return 0
        if (epoch > self.epoch and sequence != 0 and self.epoch >= 0) or (
            epoch == self.epoch and sequence != self.next
        ):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch > self.epoch:
            self.last.clear()
        self.epoch = epoch
        self.next = sequence + len(values)
        self.last = [*self.last, (sequence, len(values))][-5:]
        self.log += values
        return 0


class World:
    """A queue, its producer and its partition. Each batch has numbers of its own instead of records."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.idempotence = Idempotence(is_transactional=False)
        self.idempotence.set_id(1, 0)
        self.queue = PartitionQueue("t", 0)
        self.partition = Partition()
        self.values: dict[ProducerBatch, list[int]] = {}
        self.in_flight: list[tuple[ProducerBatch, int, int]] = []
        self.acknowledged: list[int] = []
        self.given_up: set[int] = set()
        self.doubtful: set[int] = set()
        self.count = 0

    def enqueue(self) -> None:
        batch = ProducerBatch("t", 0, 0.0, self.queue.next_ordinal)
        self.queue.next_ordinal += 1
        batch.count = self.rng.randint(1, 3)
        self.values[batch] = list(range(self.count, self.count + batch.count))
        self.count += batch.count
        self.queue.batches.append(batch)

    def send(self) -> None:
        self.idempotence.bump_where_wanted([self.queue] if self.queue.bump_wanted else [])
        while self.queue.batches and self.idempotence.may_take(self.queue) and len(self.in_flight) < 5:
            batch = self.queue.batches.pop(0)
            self.idempotence.stamp(self.queue, batch)
            self.queue.in_flight += 1
            self.in_flight.append((batch, batch.producer_epoch, batch.sequence))

    def answer(self, trouble: float) -> None:
        batch, epoch, sequence = self.in_flight.pop(0)
        self.queue.in_flight -= 1
        draw = self.rng.random()
        if draw < trouble:
            # Lost on the way there, lost on the way back, refused for the moment, or given up by the client.
            kind = self.rng.choice(["request", "answer", "refused", "gone"])
            if kind in ("answer", "gone"):
                self.partition.append(epoch, sequence, self.values[batch])
            if kind == "refused":
                assert self.idempotence.may_retry(self.queue, batch, ErrorCode.NOT_ENOUGH_REPLICAS)
            else:
                batch.is_doubtful = True
            if kind == "gone":
                self.idempotence.given_up(self.queue, batch)
                self.given_up.update(self.values[batch])
                return
            self.queue.put_back(batch)
            return
        code = self.partition.append(epoch, sequence, self.values[batch])
        if code == 0:
            batch.is_doubtful = False
            self.idempotence.acknowledged(self.queue, batch)
            self.acknowledged += self.values[batch]
        else:
            assert self.idempotence.may_retry(self.queue, batch, code), code
            self.queue.put_back(batch)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_written_twice_or_out_of_order_whatever_the_links_lose(seed: int) -> None:
    world = World(seed)
    for step in range(400):
        if step < 300 and world.rng.random() < 0.5:
            world.enqueue()
        world.send()
        if world.in_flight:
            world.answer(trouble=0.4 if step < 300 else 0.0)
    for _ in range(2000):
        if not world.queue.batches and not world.in_flight:
            break
        world.send()
        if world.in_flight:
            world.answer(0.0)
    assert not world.queue.batches
    assert set(world.acknowledged) | world.given_up == set(range(world.count))
    log = world.partition.log
    assert log == sorted(set(log)), "written twice or out of order"
    assert set(world.acknowledged) <= set(log)


def test_the_first_batch_goes_alone_and_then_at_most_five_are_unanswered() -> None:
    world = World(1)
    for _ in range(9):
        world.enqueue()
    world.send()
    assert len(world.in_flight) == 1  # the broker does not know the producer yet
    world.answer(0.0)
    world.send()
    assert len(world.in_flight) == 5


def test_a_new_epoch_waits_until_nobody_doubts() -> None:
    world = World(1)
    idempotence, queue = world.idempotence, world.queue
    world.enqueue()
    world.send()
    world.answer(0.0)
    for _ in range(2):
        world.enqueue()
    world.send()
    lost, doubtful = (batch for batch, _, _ in world.in_flight)
    queue.in_flight = 0
    idempotence.given_up(queue, lost)
    doubtful.is_doubtful = True
    queue.put_back(doubtful)
    idempotence.bump_where_wanted([queue])
    assert (idempotence.epoch, queue.bump_wanted) == (0, True)
    assert idempotence.may_take(queue)  # to learn, with its old sequence, whether the broker has it
    assert idempotence.may_retry(queue, doubtful, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    idempotence.bump_where_wanted([queue])
    assert (idempotence.epoch, doubtful.producer_epoch, doubtful.sequence) == (1, 1, 0)


def test_the_last_epoch_is_followed_by_a_new_id() -> None:
    idempotence = Idempotence(is_transactional=False)
    idempotence.set_id(1, 0x7FFF)
    queue = PartitionQueue("t", 0)
    queue.bump_wanted = True
    assert not idempotence.bump_where_wanted([queue])
    assert not idempotence.has_id


def test_a_transactional_producer_leaves_epochs_to_its_coordinator() -> None:
    idempotence = Idempotence(is_transactional=True)
    idempotence.set_id(1, 0)
    queue = PartitionQueue("t", 0)
    batch = ProducerBatch("t", 0, 0.0, 0)
    idempotence.stamp(queue, batch)
    assert not idempotence.may_retry(queue, batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not idempotence.may_retry(queue, batch, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert not queue.bump_wanted
