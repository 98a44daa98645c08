"""Which ends of leaders' terms, and which epochs of offsets, the simulator takes for right."""

import pytest

from mainstem.protocol.batch import BatchView
from mainstem.protocol.builder import BatchBuilder
from mainstem.sim.checkers.terms_are_told import check_end, check_epoch
from mainstem.sim.ledger import Violation


def _batch(base_offset: int, epoch: int, records: int) -> BatchView:
    builder = BatchBuilder()
    for number in range(records):
        builder.append(0, None, b"%d" % number)
    data = base_offset.to_bytes(8, "big") + builder.build()[8:12] + epoch.to_bytes(4, "big") + builder.build()[16:]
    return BatchView(data, 0)


TERMS = [_batch(0, 1, 5), _batch(5, 1, 5), _batch(10, 4, 10)]
"""Epochs 1 and 4 have batches; 6 is in force."""


@pytest.mark.parametrize(
    ("asked", "told"),
    [(1, (1, 10)), (4, (4, 20)), (2, (1, 10)), (3, (2, 10)), (5, (4, 20)), (0, (0, 0))],
)
def test_a_term_ends_where_the_next_one_begins(asked: int, told: tuple[int, int]) -> None:
    check_end("log-0", TERMS, (0, 20), asked, told)


@pytest.mark.parametrize(("asked", "told"), [(1, (1, 20)), (1, (1, 5)), (1, (0, 10)), (2, (4, 10)), (0, (0, 10))])
def test_another_end_of_a_term_is_noticed(asked: int, told: tuple[int, int]) -> None:
    with pytest.raises(Violation, match="P9 a term ends where the next begins"):
        check_end("log-0", TERMS, (0, 20), asked, told)


def test_where_compaction_took_batches_a_term_may_end_anywhere_between() -> None:
    left = [TERMS[0], TERMS[2]]
    for end in (5, 7, 10):
        check_end("log-0", left, (0, 20), 1, (1, end))
    check_end("log-0", left[1:], (0, 20), 3, (1, 10))  # the term below is known, and all of it compacted
    with pytest.raises(Violation, match="P9 a term ends"):
        check_end("log-0", left, (0, 20), 1, (1, 11))


def test_an_offset_of_another_term_than_its_batch_is_noticed() -> None:
    assert check_epoch("log-0", TERMS, 0, 9, 1)
    assert not check_epoch("log-0", TERMS, 0, 20, 1), "nobody can tell"
    with pytest.raises(Violation, match="P9 an offset has the epoch of its batch"):
        check_epoch("log-0", TERMS, 0, 10, 1)


def test_what_a_log_has_back_after_a_power_loss_may_be_of_no_known_term() -> None:
    """Its start was moved and its terms cut there; the power loss took the start."""
    assert not check_epoch("log-0", TERMS, 7, 0, -1)
    assert check_epoch("log-0", TERMS, 7, 7, 1)
