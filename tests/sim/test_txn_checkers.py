"""What the simulator's checkers of transactions let pass, and what not, by what logs say batch by batch."""

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.broker.partition import Partition
from mainstem.core.log.config import LogConfig
from mainstem.core.txn.records import log_record, tombstone
from mainstem.core.txn.states import EPOCH_MAX, TV2, Transaction, TxnState
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import EndMarker, build_end_marker
from mainstem.sim.checkers.ids_are_known import IdsAreKnown
from mainstem.sim.checkers.markers_are_decisions import MarkersAreDecisions
from mainstem.sim.checkers.markers_outlive import ends_of
from mainstem.sim.checkers.no_hanging_transactions import NoHangingTransactions
from mainstem.sim.checkers.old_epochs_are_over import OldEpochsAreOver
from mainstem.sim.checkers.producer_ids_rotate import ProducerIdsRotate
from mainstem.sim.checkers.producers_are_known import ProducersAreKnown
from mainstem.sim.checkers.transactions_have_their_time import TransactionsHaveTheirTime
from mainstem.sim.committed import check_given, committed_between
from mainstem.sim.disk import SimDisk
from mainstem.sim.ledger import Ledger, Violation
from mainstem.sim.loop import EPOCH_MS, Scheduler, SimClock, make_loop
from mainstem.sim.txn_ledger import TxnLedger
from mainstem.sim.txn_logs import TxnLogs
from mainstem.sim.txn_shape import ID_EXPIRATION_MS, TxnShape
from mainstem.sim.written import STATE_TOPIC
from mainstem.storage.open_files import OpenFiles
from mainstem.storage.recovery import open_log

PLACE = ("txn", 0)
BROKER: Any = None


def _world() -> Any:
    """What checkers ask of a run."""
    counts: Counter[str] = Counter()
    return SimpleNamespace(
        process=SimpleNamespace(is_serving=True),
        ledger=Ledger(lambda what: None),
        txns=TxnLedger(lambda what: None),
        counts=counts,
        count=lambda what: counts.update([what]),
        may_be_torn=lambda producer_id, epoch=0: False,
        producers_expire=False,
        txn_shape=TxnShape(forgets=True),
    )


class Logs:
    """A coordinator's log and a partition's, with every checker that follows them."""

    def __init__(self) -> None:
        self.world = _world()
        self.world.txn_logs = TxnLogs(self.world)
        self._hanging = NoHangingTransactions(self.world)
        following = (OldEpochsAreOver, MarkersAreDecisions, ProducerIdsRotate, IdsAreKnown)
        self._following = [*(each(self.world) for each in following), self.world.txn_logs]

    def _append(self, place: tuple[str, int], data: bytes) -> None:
        batch = BatchView(data, 0)
        for each in self._following:
            each.appended(place, batch)
        self._hanging.after_step(BROKER)

    def note(self, state: TxnState, epoch: int, producer_id: int = 1, **more: int) -> None:
        places = () if state is TxnState.EMPTY else (PLACE,)
        txn = Transaction("id", producer_id, epoch, 1000, state, places, client_version=TV2, **more)
        builder = BatchBuilder()
        record = log_record(txn, TV2)
        builder.append(0, record.key, record.value)
        self._append((STATE_TOPIC, 0), builder.build())

    def forget(self, now_ms: int) -> None:
        builder = BatchBuilder()
        record = tombstone("id")
        builder.append(now_ms, record.key, record.value)
        self._append((STATE_TOPIC, 0), builder.build())

    def data(self, epoch: int) -> None:
        self._append(PLACE, data(epoch))

    def marker(self, epoch: int, commit: bool) -> None:
        self._append(PLACE, marker(epoch, commit))


def data(epoch: int) -> bytes:
    builder = BatchBuilder(producer_id=1, producer_epoch=epoch, base_sequence=0, transactional=True)
    builder.append(0, b"key", b"value")
    return builder.build()


def marker(epoch: int, commit: bool) -> bytes:
    return build_end_marker(EndMarker(1, epoch, commit, 0))


@pytest.fixture
def logs() -> Logs:
    return Logs()


def test_a_transaction_from_its_begin_to_its_end_is_fine(logs: Logs) -> None:
    logs.note(TxnState.EMPTY, 0)
    for epoch in range(3):
        logs.note(TxnState.ONGOING, epoch)
        logs.data(epoch)
        logs.note(TxnState.PREPARE_COMMIT, epoch + 1)
        logs.data(epoch)  # on its way when the end was asked for
        logs.marker(epoch + 1, True)
        logs.note(TxnState.COMPLETE_COMMIT, epoch + 1)
        logs.marker(epoch + 1, True)  # comes again
    assert logs.world.counts["marker checked"] == 6


def test_what_a_start_finds_had_ended_before_it(logs: Logs) -> None:
    """Also on a disk that was not watched when it was written (X6): seed 320 took it for an end of this life."""
    logs.world.process.is_serving = False
    logs.note(TxnState.ONGOING, 0)
    logs.data(0)
    logs.note(TxnState.PREPARE_COMMIT, 1)
    logs.marker(1, True)
    on_partition = logs.world.txn_logs.partitions[PLACE]
    assert (on_partition.open, on_partition.ended, on_partition.ended_before) == ({}, {}, {0: 0})
    logs.world.process.is_serving = True
    logs.note(TxnState.ONGOING, 1)
    logs.data(1)
    logs.note(TxnState.PREPARE_COMMIT, 2)
    logs.marker(2, True)
    assert on_partition.ended == {0: 0}


def test_an_id_that_nobody_uses_may_be_forgotten(logs: Logs) -> None:
    logs.note(TxnState.COMPLETE_COMMIT, 3, updated_ms=1000)
    logs.forget(1000 + ID_EXPIRATION_MS)
    logs.note(TxnState.EMPTY, 0, producer_id=2)
    assert logs.world.counts["transactional id forgotten"] == logs.world.counts["forgotten id taken again"] == 1


@pytest.mark.parametrize(
    ("state", "idle_ms"),
    [(TxnState.EMPTY, ID_EXPIRATION_MS - 1), (TxnState.ONGOING, 9_999), (TxnState.PREPARE_ABORT, 9_999)],
)
def test_an_id_that_is_forgotten_too_early_is_noticed(logs: Logs, state: TxnState, idle_ms: int) -> None:
    logs.note(state, 3, updated_ms=1000)
    with pytest.raises(Violation, match="T4 an id is known its time"):
        logs.forget(1000 + idle_ms)


def test_an_id_that_is_forgotten_where_ids_are_known_for_long_is_noticed(logs: Logs) -> None:
    logs.world.txn_shape = TxnShape()
    logs.note(TxnState.EMPTY, 3, updated_ms=1000)
    with pytest.raises(Violation, match="T4 an id is known its time"):
        logs.forget(1000 + 6 * 24 * 3_600_000)


def test_a_producer_id_that_is_given_again_after_it_was_forgotten_is_noticed(logs: Logs) -> None:
    logs.note(TxnState.EMPTY, 3, updated_ms=1000)
    logs.forget(1000 + ID_EXPIRATION_MS)
    with pytest.raises(Violation, match="T4 an id that was forgotten begins anew"):
        logs.note(TxnState.EMPTY, 0)


def test_a_batch_of_an_id_that_was_forgotten_is_noticed(logs: Logs) -> None:
    logs.note(TxnState.EMPTY, 3, updated_ms=1000)
    logs.forget(1000 + ID_EXPIRATION_MS)
    with pytest.raises(Violation, match="T4 an old epoch appends nothing"):
        logs.data(3)


def test_a_batch_of_an_epoch_that_is_over_is_noticed(logs: Logs) -> None:
    logs.note(TxnState.ONGOING, 5)
    with pytest.raises(Violation, match="T4 an old epoch appends nothing"):
        logs.data(4)


def test_a_batch_after_the_end_of_its_transaction_is_noticed(logs: Logs) -> None:
    logs.note(TxnState.COMPLETE_ABORT, 5)
    with pytest.raises(Violation, match="T4 an old epoch appends nothing"):
        logs.data(4)


def test_a_kept_transaction_grows_no_more_once_its_next_client_was_told(logs: Logs) -> None:
    logs.note(TxnState.ONGOING, 5)
    logs.note(TxnState.ONGOING, 5, next_producer_id=1, next_producer_epoch=6)
    logs.data(5)
    logs.world.txns.given((1, 6), "client", "id")
    with pytest.raises(Violation, match="T4 an old epoch appends nothing"):
        logs.data(5)


def test_a_completed_transaction_that_is_open_on_a_partition_hangs(logs: Logs) -> None:
    logs.note(TxnState.ONGOING, 0)
    logs.data(0)
    logs.note(TxnState.PREPARE_ABORT, 1)
    told = r"T7 no transaction hangs: .* has id as producer 1 epoch 1, CompleteAbort, on txn-0, changed at"
    with pytest.raises(Violation, match=told):
        logs.note(TxnState.COMPLETE_ABORT, 1)


@pytest.mark.parametrize(("epoch", "commit"), [(1, True), (2, False)])
def test_a_marker_that_nobody_decided_is_noticed(logs: Logs, epoch: int, commit: bool) -> None:
    logs.note(TxnState.ONGOING, 0)
    logs.data(0)
    logs.note(TxnState.PREPARE_ABORT, 1)
    with pytest.raises(Violation, match="T8 a marker is its coordinator's decision"):
        logs.marker(epoch, commit)


def test_a_marker_of_the_last_transaction_does_not_end_this_one(logs: Logs) -> None:
    logs.note(TxnState.PREPARE_ABORT, 1)
    logs.note(TxnState.COMPLETE_ABORT, 1)
    logs.note(TxnState.ONGOING, 1)
    logs.data(1)
    with pytest.raises(Violation, match="T8 a marker is its coordinator's decision"):
        logs.marker(1, False)


def test_an_id_is_another_only_where_its_epochs_are_used_up(logs: Logs) -> None:
    logs.note(TxnState.ONGOING, EPOCH_MAX - 1)
    logs.note(TxnState.PREPARE_COMMIT, EPOCH_MAX, next_producer_id=2)
    logs.note(TxnState.COMPLETE_COMMIT, 0, producer_id=2)
    assert logs.world.counts["C6 producer id rotated"] == 1
    with pytest.raises(Violation, match="T11 an id is used up before the next"):
        logs.note(TxnState.EMPTY, 0, producer_id=3)


def test_no_client_has_the_highest_epoch_and_no_epoch_goes_back(logs: Logs) -> None:
    logs.note(TxnState.EMPTY, 7)
    with pytest.raises(Violation, match="T11 epochs only rise"):
        logs.note(TxnState.EMPTY, 6)
    with pytest.raises(Violation, match="T11 the highest epoch is for markers"):
        logs.note(TxnState.EMPTY, EPOCH_MAX)


def test_each_batch_has_the_marker_of_its_own_transaction() -> None:
    written = []
    for offset, batch in enumerate((data(0), marker(1, True), data(1), marker(2, False), data(2))):
        # The base offset comes first in a batch.
        written.append(BatchView(offset.to_bytes(8, "big") + batch[8:], 0))
    assert ends_of(written) == {0: (1, True), 2: (3, False)}


def test_what_a_reader_must_be_given_is_told_by_the_markers() -> None:
    def at(offset: int, batch: bytes) -> BatchView:
        return BatchView(offset.to_bytes(8, "big") + batch[8:], 0)

    written = [at(0, data(0)), at(1, marker(1, True)), at(2, data(1)), at(3, marker(2, False)), at(4, data(2))]
    written.append(at(5, marker(3, True)))
    assert committed_between(written, 0, 6) == [(0, b"value"), (4, b"value")]
    assert committed_between(written, 1, 4) == []
    assert committed_between(written, 4, 5) == [(4, b"value")], "its marker lies behind what was read"


def test_a_poll_that_skips_or_shows_too_much_is_noticed() -> None:
    world = _world()
    world.process.life = 3
    world.is_keyed = lambda topic: topic == "txnkeyed"
    world.written = SimpleNamespace(
        find=lambda place: SimpleNamespace(
            is_known=True, batches=[BatchView(data(0), 0), BatchView((1).to_bytes(8, "big") + marker(1, True)[8:], 0)]
        )
    )
    check_given(world, PLACE, 0, 2, [(0, b"value")], 3, "")
    with pytest.raises(Violation, match=r"^poll-skip"):
        check_given(world, PLACE, 0, 2, [], 3, "")
    with pytest.raises(Violation, match=r"^int-G1a"):
        check_given(world, PLACE, 1, 2, [(0, b"value")], 3, "int-")
    check_given(world, PLACE, 0, 2, [], 2, "")  # of an earlier life
    check_given(world, ("txnkeyed", 0), 0, 2, [], 3, "")  # compacted, perhaps
    assert world.counts["committed poll checked"] == 1


EXPIRATION_MS = 1000


class Known:
    """What a log has of a producer, and what its partition knows."""

    def __init__(self) -> None:
        scheduler = Scheduler(Random(0))
        self._clock = SimClock(scheduler)
        self.set_clock(0)
        self.world = _world()
        self.world.is_keyed = lambda topic: False
        self.world.process.clock = self._clock
        disk = SimDisk(Random(0))
        disk.make_directory("/txn-0")
        log = open_log(OpenFiles(disk, 10), "/txn-0", LogConfig(), 0, producer_expiration_ms=EXPIRATION_MS)
        self.states = log.producers.states
        loop = make_loop(scheduler, Random(0), "broker")
        partition = Partition(loop, self._clock, PLACE[0], bytes(16), PLACE[1], log, lambda partition, error: None)
        self._broker: Any = SimpleNamespace(partitions=SimpleNamespace(by_place={PLACE: partition}))
        self._checker = ProducersAreKnown(self.world)
        self._checker.appended(PLACE, BatchView(data(0), 0))
        self.states.apply_data(1, 0, 0, 0, 0, 0, True)

    def set_clock(self, now_ms: int) -> None:
        self._clock.skew_ms = now_ms - EPOCH_MS

    def look(self) -> None:
        self._checker.after_step(self._broker)

    def mark(self, *, timestamp: int, known_as: tuple[int, int]) -> None:
        """A marker of epoch 1 by a coordinator of epoch 5 is in the log; what the partition makes of it."""
        self._checker.appended(PLACE, BatchView(build_end_marker(EndMarker(1, 1, False, 5, timestamp=timestamp)), 0))
        ended = self.states.apply_marker(1, *known_as, True, 1, timestamp)
        assert ended is not None
        self.states.complete(ended)


def test_a_producer_is_known_until_its_time_is_over() -> None:
    known = Known()
    known.mark(timestamp=500, known_as=(1, 5))
    known.look()
    known.set_clock(1_600)
    assert known.states.expire(1_600, EXPIRATION_MS) == [1]
    known.look()
    known.set_clock(0)
    known.look()


def test_a_producer_that_is_forgotten_too_early_is_noticed() -> None:
    """KAFKA-9144."""
    known = Known()
    known.mark(timestamp=500, known_as=(1, 5))
    known.look()
    known.set_clock(1_000)
    known.states.clear()
    with pytest.raises(Violation, match="T4 a producer is known its time"):
        known.look()


@pytest.mark.parametrize("known_as", [(0, 5), (1, 4)])
def test_a_producer_of_which_something_else_is_known_is_noticed(known_as: tuple[int, int]) -> None:
    known = Known()
    known.mark(timestamp=500, known_as=known_as)
    with pytest.raises(Violation, match="T4 a producer is known its time"):
        known.look()


@pytest.mark.parametrize("is_seen", [False, True], ids=["never late", "late for a moment"])
def test_a_transaction_whose_time_was_over_by_the_clock_may_be_aborted_when_that_was_set_back(is_seen: bool) -> None:
    """Seed 301526: one of several that were found to be late together was aborted when the clock had been set back."""
    logs = Logs()
    scheduler = logs.world.scheduler = Scheduler(Random(0))
    clock = logs.world.process.clock = SimClock(scheduler)
    logs.world.txns.is_left_alone = lambda transactional_id, producer: True
    logs._following.insert(0, TransactionsHaveTheirTime(logs.world))
    if not is_seen:
        clock.jump(2000)  # before it began, which is no matter to it
        clock.jump(-2000)
    start_ms = clock.wall_ms()
    scheduler.now = 0.1
    logs.note(TxnState.ONGOING, 0, start_ms=start_ms, updated_ms=start_ms)
    if is_seen:
        clock.jump(2000)
        scheduler.now = 0.2
        clock.jump(-2000)
    now_ms = clock.wall_ms()
    if is_seen:
        logs.note(TxnState.PREPARE_ABORT, 1, start_ms=start_ms, updated_ms=now_ms)
        assert logs.world.counts["transaction timed out"] == 1
    else:
        with pytest.raises(Violation, match="T12 a transaction has its time"):
            logs.note(TxnState.PREPARE_ABORT, 1, start_ms=start_ms, updated_ms=now_ms)
