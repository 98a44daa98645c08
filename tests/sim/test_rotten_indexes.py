"""What rot in an index takes with it, in the simulator: nothing that is said of records."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.sim.ledger import Ledger
from mainstem.sim.rotten_indexes import rotted

PLACE = ("log", 1)


@pytest.mark.parametrize(
    ("name", "is_damaged", "is_mistimed"),
    [
        ("00000000000000000000.log", True, False),
        ("00000000000000000000.txnindex", True, False),
        ("00000000000000000007.snapshot", True, False),
        ("00000000000000000000.index", False, False),
        ("00000000000000000000.timeindex", False, True),
    ],
)
def test_rot_excuses_no_more_than_it_can_do(name: str, is_damaged: bool, is_mistimed: bool) -> None:
    ledger = Ledger(lambda what: None)
    world: Any = SimpleNamespace(ledger=ledger, trace=lambda *event: None, damage=ledger.damage, counts=Counter())
    rotted(world, f"/data/{PLACE[0]}-{PLACE[1]}/{name}")
    assert (PLACE in ledger.damaged) == is_damaged
    assert (PLACE in ledger.mistimed) == is_mistimed
