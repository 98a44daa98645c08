"""What the ledgers of the simulator forgive after a power loss: what lay past the cut, and nothing else."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.core.txn.states import Transaction as State
from mainstem.core.txn.states import TxnState
from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.records import iterate_records
from mainstem.sim.checkers.history import HistoryHolds
from mainstem.sim.churn import Churn
from mainstem.sim.group_ledger import GroupLedger, OffsetAndEpoch
from mainstem.sim.ledger import Ledger, Send, Violation
from mainstem.sim.txn_ledger import Txn, TxnLedger

PLACE = ("log", 0)


def test_a_record_is_read_as_it_was_sent() -> None:
    ledger = Ledger(lambda what: None)
    send = Send(PLACE, b"value", b"key", "producer", 1, ordered=True)
    send.headers, send.timestamp_ms = [("name", None)], 7
    ledger.sent(send)

    def odd(
        key: bytes | None, timestamp: int, *headers: tuple[str, bytes | None], append_time: int | None = None
    ) -> str:
        builder = BatchBuilder(log_append_time=append_time)
        builder.append(timestamp, key, b"value", list(headers))
        batch = BatchView(builder.build(), 0)
        return ledger.difference(PLACE, batch, next(iterate_records(batch)), b"value")

    assert odd(b"key", 7, ("name", None)) == ""
    assert "the key of b'value' is None" in odd(None, 7, ("name", None))
    assert "the headers of b'value' are []" in odd(b"key", 7)
    assert "is 8, and was 7" in odd(b"key", 8, ("name", None))
    assert "is that of its append" in odd(b"key", 7, ("name", None), append_time=9)
    ledger.append_time_topics = frozenset({"log"})
    assert "is not that of its append" in odd(b"key", 7, ("name", None))
    assert odd(b"key", 7, ("name", None), append_time=9) == ""
    ledger.codecs = {"log": 1}
    assert "stored with codec 0" in odd(b"key", 7, ("name", None), append_time=9)


def test_a_topic_that_is_flushed_before_each_answer_loses_nothing() -> None:
    ledger = Ledger(lambda what: None)
    ledger.loses_nothing = False
    ledger.durable_topics = frozenset({"log"})
    for place in (("short", 0), PLACE):
        value = place[0].encode()
        ledger.sent(Send(place, value, None, "producer", 1, ordered=True))
        ledger.acked(value, 0, 1)
    ledger.cut(("short", 0), 2, 0)
    with pytest.raises(Violation, match="P1 what was acknowledged is there"):
        ledger.cut(PLACE, 2, 0)


class Groups:
    """A ledger, and a coordinator's log that commits are written to one after the other."""

    def __init__(self, *, loses_nothing: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.ledger = GroupLedger(lambda what: self.counts.update([what]))
        self.ledger.loses_nothing = loses_nothing
        self.end = 0

    def commit(self, offset: int, *, is_logged: bool = True, code: ErrorCode = ErrorCode.NONE) -> None:
        commit = self.ledger.committing("group", -1, "", PLACE, offset, 1)
        if is_logged:
            self.ledger.log_commit("group", PLACE, commit.tag, OffsetAndEpoch(offset, -1), 0, 0, self.end)
            self.end += 1
        self.ledger.committed(commit, code)

    def last(self) -> int | None:
        found = self.ledger.last("group", PLACE)
        return None if found is None else found.offset


def _history(*order: Send) -> None:
    """Checks a log that has these records, in this order."""
    ledger = Ledger(lambda what: None)
    for number, send in enumerate(order):
        ledger.sent(send)
        if send.acked_at is not None:
            send.acked_at = number
    records = [(number, None, send.value) for number, send in enumerate(order)]
    world: Any = SimpleNamespace(
        ledger=ledger,
        observer=SimpleNamespace(finals={PLACE: (0, len(order), records)}),
        process=SimpleNamespace(life=1),
        txns=SimpleNamespace(by_value={}),
        may_trim=lambda topic: False,
        is_keyed=lambda topic: False,
    )
    HistoryHolds(world).at_end(None)  # type: ignore[arg-type]


def _sent(number: int, begun: int, *, is_acked: bool = True) -> Send:
    send = Send(PLACE, b"value %d" % number, None, "producer", number, ordered=True, begun=begun)
    send.acked_at = 0 if is_acked else None
    return send


def test_what_a_producer_gave_up_may_come_after_what_it_sent_under_its_next_id_and_nothing_else_may() -> None:
    """Seed 70019308: a batch that was sent before its topic was there again arrived when its producer had a new id."""
    _history(_sent(1, 0), _sent(3, 1), _sent(2, 0, is_acked=False), _sent(4, 1))
    wrong = [
        (_sent(1, 0), _sent(3, 1), _sent(2, 0)),
        (_sent(3, 1), _sent(2, 1, is_acked=False)),
        (_sent(4, 1), _sent(3, 0, is_acked=False), _sent(2, 0, is_acked=False)),
        (_sent(1, 1), _sent(3, 0), _sent(2, 1, is_acked=False)),
    ]
    for order in wrong:
        with pytest.raises(Violation, match="nonmonotonic-send"):
            _history(*order)


def test_a_commit_past_the_cut_is_forgiven_and_the_one_before_it_counts_again() -> None:
    groups = Groups(loses_nothing=False)
    groups.commit(10)
    groups.commit(20)
    groups.ledger.cut(0, 1, 2)
    assert groups.last() == 10
    assert groups.counts["commit lost with the power"] == 1
    groups.ledger.cut(1, 0, 2)
    assert groups.last() == 10, "that was the log of another coordinator"


def test_no_acknowledged_commit_may_be_lost_where_each_is_synced() -> None:
    groups = Groups(loses_nothing=True)
    groups.commit(10)
    with pytest.raises(Violation, match="G4"):
        groups.ledger.cut(0, 0, 2)


def test_a_commit_is_acknowledged_only_when_it_is_logged_and_refused_only_when_it_is_not() -> None:
    groups = Groups(loses_nothing=True)
    with pytest.raises(Violation, match="G8"):
        groups.commit(10, is_logged=False)
    with pytest.raises(Violation, match="G5"):
        groups.commit(10, code=ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_deleted_group_has_nothing_left() -> None:
    groups = Groups(loses_nothing=True)
    groups.commit(10)
    deletion = groups.ledger.committing("group", -1, "", PLACE, -1, 1)
    with pytest.raises(Violation, match="G4"):
        groups.ledger.committed(deletion, ErrorCode.NONE)
    groups.ledger.log_tombstone("group", PLACE, 0, groups.end, deletion)
    groups.ledger.committed(deletion, ErrorCode.NONE)
    assert groups.last() == -1


def test_generations_past_the_cut_may_come_again_and_no_others() -> None:
    ledger = Groups(loses_nothing=False).ledger
    for generation in (1, 2):
        ledger.log_generation("group", generation, 0, generation)
        ledger.assigned("group", generation, "one", [0], 1)
    ledger.cut(0, 2, 2)
    ledger.assigned("group", 2, "another", [0], 2)
    with pytest.raises(Violation, match="G1"):
        ledger.assigned("group", 1, "another", [0], 2)


def test_what_is_told_of_a_group_that_is_gone_does_not_count_for_the_next() -> None:
    """Who was paused is told late; generations have begun anew meanwhile (seed 4001492)."""
    ledger = Groups(loses_nothing=True).ledger
    before = ledger.times_gone("group")
    ledger.log_generation("group", -1, 0, 1)
    now = ledger.times_gone("group")
    ledger.assigned("group", 2, "paused", [0], 1, before)
    ledger.assigned("group", 2, "one", [0], 1, now)
    with pytest.raises(Violation, match="G1"):
        ledger.assigned("group", 2, "another", [0], 1, now)


class Transactions:
    """A ledger, and the log of the coordinator of one transactional id."""

    def __init__(self, *, loses_nothing: bool = False) -> None:
        self.ledger = TxnLedger(lambda what: None)
        self.ledger.loses_nothing = loses_nothing
        self.end = 0

    def begin(self, pair: tuple[int, int], value: bytes) -> Txn:
        txn = self.ledger.begin("client", "id", "group", pair)
        self.ledger.wrote(txn, value, PLACE)
        self.state(pair, TxnState.ONGOING)
        return txn

    def abort(self, txn: Txn) -> None:
        self.ledger.ending(txn)
        self.state(txn.pair, TxnState.PREPARE_ABORT)
        self.state(txn.pair, TxnState.COMPLETE_ABORT)

    def state(self, pair: tuple[int, int], state: TxnState) -> None:
        self.ledger.log_state("id", 0, self.end, State("id", *pair, 1000, state))
        self.end += 1


def test_only_the_transaction_whose_end_was_lost_is_torn() -> None:
    world = Transactions()
    over = world.begin((7, 0), b"over")
    world.abort(over)
    torn = world.begin((7, 0), b"torn")
    world.abort(torn)
    world.ledger.cut_states(0, world.end - 1)
    assert torn.is_torn
    world.ledger.seen(PLACE, 1, b"torn")
    with pytest.raises(Violation, match="G1a"):
        world.ledger.seen(PLACE, 0, b"over")


def test_a_torn_transaction_excuses_its_own_epoch_and_the_next_and_no_later_one() -> None:
    world = Transactions()
    world.abort(world.begin((7, 3), b"torn"))
    world.ledger.cut_states(0, 0)
    assert [world.ledger.is_torn_at(7, epoch) for epoch in (2, 3, 4, 5)] == [True, True, True, False]
    assert not world.ledger.is_torn_at(8, 3)


def test_a_lost_marker_tears_what_it_ended_and_a_kept_one_does_not() -> None:
    world = Transactions()
    kept, torn = world.begin((7, 0), b"kept"), world.begin((8, 0), b"torn")
    world.ledger.cut_records([(7, [kept], False), (8, [torn], False), (7, None, False), (8, None, True)])
    assert (kept.is_torn, torn.is_torn) == (False, True)


def test_nothing_is_torn_where_each_acknowledgement_is_synced() -> None:
    world = Transactions(loses_nothing=True)
    txn = world.begin((7, 0), b"value")
    world.ledger.cut_states(0, 0)
    world.ledger.cut_records([(7, [txn], True)])
    assert not txn.is_torn


def test_an_epoch_is_given_again_only_where_the_coordinator_lost_it() -> None:
    world = Transactions()
    world.state((7, 0), TxnState.EMPTY)
    world.ledger.given((7, 0), "client", "id")
    with pytest.raises(Violation, match="T4"):
        world.ledger.given((7, 0), "client", "id")
    world.ledger.cut_states(0, 0)
    world.ledger.given((7, 0), "another", "id")
    assert world.begin((7, 0), b"value").is_torn, "its batches may be taken for those of the first"


def test_two_that_were_given_one_epoch_after_a_loss_are_given_the_next_one_both() -> None:
    world = Transactions()
    world.state((7, 0), TxnState.EMPTY)
    world.ledger.given((7, 0), "client", "id")
    world.ledger.cut_states(0, 0)
    world.ledger.given((7, 0), "another", "id")
    world.ledger.given((7, 1), "another", "id", after=(7, 0))
    with pytest.raises(Violation, match="T4"):
        world.ledger.given((7, 1), "client", "id")
    world.ledger.given((7, 1), "client", "id", after=(7, 0))
    assert world.begin((7, 1), b"value").is_torn


def test_an_id_may_be_taken_while_somebody_who_asked_for_it_was_not_answered() -> None:
    ledger = Transactions().ledger
    assert not ledger.may_be_taken("id")
    ledger.asking("id")
    ledger.asking("id")
    ledger.was_answered("id")
    assert ledger.may_be_taken("id")
    assert not ledger.may_be_taken("other")
    ledger.was_answered("id")
    assert not ledger.may_be_taken("id")


def test_a_new_topic_has_nothing_of_the_one_before_it() -> None:
    counts: Counter[str] = Counter()
    world: Any = SimpleNamespace(seed=0, count=lambda what: counts.update([what]))
    churn = Churn(world, SimpleNamespace(name="admin"))  # type: ignore[arg-type]
    churn.created("churn0")
    churn._written[b"old"] = 1
    churn.check("churn0", [b"old", b"unanswered"])
    churn.created("churn0")
    churn._written[b"new"] = 2
    churn.check("churn0", [b"new", b"unanswered"])
    assert counts["A2 new topic of an old name read"] == 1
    with pytest.raises(Violation, match="P10 a new topic is empty"):
        churn.check("churn0", [b"old"])


def test_a_generation_that_nobody_was_assigned_counts_as_long_as_its_coordinator_leads() -> None:
    """Seed 400009808: it is not logged before that, and a coordinator that begins anew in one life gives it again."""
    ledger = Groups(loses_nothing=True).ledger
    term = 1
    ledger.term_of = lambda group: term
    ledger.joined("group", 2, 1)
    assert ledger.is_over("group", 1, 1)
    term = 2
    assert not ledger.is_over("group", 1, 1)
    ledger.assigned("group", 2, "member", [0], 1)
    assert ledger.is_over("group", 1, 1)
