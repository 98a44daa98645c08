"""Who may name which identity, by what a coordinator has written; and when a late marker comes."""

from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.core.txn.states import EPOCH_MAX, TV1, TV2, Transaction, TxnState
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from mainstem.sim.late_markers import LateMarkers
from mainstem.sim.ledger import Violation
from mainstem.sim.txn_shape import TxnShape
from mainstem.sim.zombies import Owner, Zombie, _may_be_named

PLACE = ("txn", 0)
COMPLETE, EMPTY, PREPARE = TxnState.COMPLETE_ABORT, TxnState.EMPTY, TxnState.PREPARE_ABORT


def _txn(epoch: int, state: TxnState = COMPLETE, producer_id: int = 1, **more: int) -> Transaction:
    return Transaction("id", producer_id, epoch, 1000, state, (), client_version=TV2, **more)


@pytest.mark.parametrize(
    ("txn", "named", "may_be"),
    [
        (_txn(5), (1, 5), True),
        (_txn(5), (1, 4), True),
        (_txn(5), (1, 3), False),
        (_txn(5), (2, 5), False),
        (_txn(0, producer_id=2, previous_producer_id=1), (1, EPOCH_MAX - 1), True),
        (_txn(0, producer_id=2, previous_producer_id=1), (1, EPOCH_MAX - 2), False),
        (_txn(EPOCH_MAX, PREPARE, next_producer_id=2, previous_producer_id=1), (2, 0), True),
    ],
)
def test_the_identity_in_force_may_be_named_and_the_one_before_it(
    txn: Transaction, named: tuple[int, int], may_be: bool
) -> None:
    assert _may_be_named(txn, named) is may_be


def _world(noted: Transaction) -> Any:
    counts: Counter[str] = Counter()
    return SimpleNamespace(
        seed=0,
        counts=counts,
        count=lambda what: counts.update([what]),
        process=SimpleNamespace(life=1, loop=None),
        nemesis=SimpleNamespace(is_over=False),
        txn_shape=TxnShape(forgets=True),
        txn_logs=SimpleNamespace(states={0: {"id": noted}}, partitions={PLACE: SimpleNamespace(open={})}),
    )


CLIENT: Any = SimpleNamespace(life=1)


def test_who_is_given_what_another_has_is_found() -> None:
    zombie = Zombie(_world(_txn(5)), CLIENT, Random(0))
    with pytest.raises(Violation, match="T4 an old identity is over"):
        zombie._check(_txn(5), (1, 3), (1, 5))


def test_a_forgotten_id_is_given_to_whoever_asks() -> None:
    Zombie(_world(_txn(5)), CLIENT, Random(0))._check(_txn(5), (1, 3), (2, 0))


def test_who_names_what_is_in_force_goes_on() -> None:
    owner = Owner(_world(_txn(5, EMPTY)), CLIENT, "id", (1, 5))
    with pytest.raises(Violation, match="T4 who has an identity goes on"):
        owner.was_refused()


def test_who_is_refused_may_have_lost_its_identity_meanwhile() -> None:
    world = _world(_txn(5, EMPTY))
    owner = Owner(world, CLIENT, "id", (1, 5))
    world.txn_logs.states[0]["id"] = _txn(6, EMPTY)
    owner.was_refused()


class Leader:
    """A loop that does at once what is due later, and a leader that refuses markers."""

    def __init__(self) -> None:
        self.given: list[WriteTxnMarkersRequest] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        callback()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with pytest.raises(StopIteration):
            coroutine.send(None)

    async def deliver(self, message: Any, version: int) -> Any:
        self.given.append(message)
        refused = WritableTxnMarkerPartitionResult(partition_index=0, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        topic = WritableTxnMarkerTopicResult(name="txn", partitions=[refused])
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=1, topics=[topic])])


def _late_markers(version: int) -> tuple[Any, LateMarkers, Leader]:
    world, leader = _world(_txn(5)), Leader()
    world.process.loop = leader
    markers = LateMarkers(world)
    markers.share = 1.0
    topic = WritableTxnMarkerTopic(name="txn", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=5,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=1,
        transaction_version=version,
    )
    markers.sent(WriteTxnMarkersRequest(markers=[marker]), 2, leader.deliver)
    return world, markers, leader


def _batch(epoch: int) -> BatchView:
    builder = BatchBuilder(producer_id=1, producer_epoch=epoch, base_sequence=0, transactional=True)
    builder.append(0, None, b"value")
    return BatchView(builder.build(), 0)


def test_a_marker_comes_again_when_its_producer_writes_there_in_its_next_transaction() -> None:
    world, markers, leader = _late_markers(TV2)
    markers.appended(PLACE, _batch(4))
    markers.appended(("txn", 1), _batch(5))
    assert not leader.given
    world.txn_logs.partitions[PLACE].open[1] = 7
    markers.appended(PLACE, _batch(5))
    markers.appended(PLACE, _batch(5))
    assert [each.markers[0].producer_epoch for each in leader.given] == [5]
    assert world.counts["late marker refused in the next transaction"] == 1


def test_no_marker_of_version_1_comes_again() -> None:
    _, markers, leader = _late_markers(TV1)
    markers.appended(PLACE, _batch(5))
    assert not leader.given
