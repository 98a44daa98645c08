"""Checkers of what members are told: each raises where its promise is broken, and nowhere else."""

import pytest

from mainstem.protocol.errors import ErrorCode
from mainstem.sim.ledger import Violation
from mainstem.sim.world import World


def test_a_member_is_given_what_its_leader_has_named() -> None:
    parts = World(0).watch.parts
    parts.named("group", 3, {"a": b"\x00", "b": b"\x01"})
    parts.given("group", 3, "a", b"\x00")
    parts.given("group", 3, "late", b"")
    with pytest.raises(Violation, match="G2"):
        parts.given("group", 3, "b", b"\x00")
    with pytest.raises(Violation, match="G2"):
        parts.given("group", 4, "a", b"\x00")


def test_a_leader_that_was_not_answered_may_name_the_same_again() -> None:
    parts = World(0).watch.parts
    parts.named("group", 3, {"a": b"\x00"})
    parts.named("group", 3, {"a": b"\x01"})
    parts.given("group", 3, "a", b"\x00")
    parts.given("group", 3, "a", b"\x01")


def test_an_id_is_replaced_by_one_that_was_given_in_the_same_life_of_the_broker() -> None:
    members = World(0).watch.members
    members.took("group", "static", "first", 1)
    assert members.replaced("group", "static", 1) is None
    members.took("group", "static", "second", 2)
    members.took("group", "static", "second", 3)
    assert members.replaced("group", "static", 2) == "first"
    assert members.replaced("group", "static", 3) is None, "a power loss may have taken who came second"


def test_who_was_replaced_commits_nothing() -> None:
    world = World(0)
    life = world.process.life
    world.watch.members.zombie_answered("group", "first", life, ErrorCode.FENCED_INSTANCE_ID)
    world.watch.members.zombie_answered("group", "first", life - 1, ErrorCode.NONE)
    with pytest.raises(Violation, match="G5"):
        world.watch.members.zombie_answered("group", "first", life, ErrorCode.NONE)


def test_who_sent_a_heartbeat_is_known_for_a_session() -> None:
    world = World(0)
    stays = world.watch.stays
    stays.is_unknown("group", "never heard of", 1, 1.5)
    stays.heard("group", "a", 1, world.scheduler.now)
    world.scheduler.now += 1.4
    stays.is_unknown("group", "a", 2, 1.5)
    stays.heard("group", "a", 1, world.scheduler.now)
    world.scheduler.now += 1.5
    stays.is_unknown("group", "a", 1, 1.5)
    stays.heard("group", "a", 1, world.scheduler.now)
    world.scheduler.now += 1.4
    with pytest.raises(Violation, match="G9"):
        stays.is_unknown("group", "a", 1, 1.5)


def test_a_transaction_is_left_alone_until_somebody_asks_for_its_end_or_for_its_id() -> None:
    txns = World(2).txns
    txns.asking("id")
    txns.was_answered("id")
    first = txns.begin("client", "id", "", (7, 0))
    assert txns.is_left_alone("id", (7, 0))
    assert not txns.is_left_alone("id", (7, 1))
    txns.ending(first)
    assert not txns.is_left_alone("id", (7, 0))
    txns.begin("client", "id", "", (7, 1))
    assert txns.is_left_alone("id", (7, 1))
    txns.asking("id")
    txns.was_answered("id")
    assert not txns.is_left_alone("id", (7, 1))
