"""Static members (KIP-345): they come back in their place, and whoever held their instance id before is fenced."""

from __future__ import annotations

from mainstem.protocol.errors import ErrorCode

from .harness import Harness


def joined_static(h: Harness, instance: str = "i", **options: object) -> str:
    answer = h.join("g", instance=instance, **options)  # type: ignore[arg-type]
    h.advance(0)
    return answer.joined.member_id


def test_a_static_member_needs_no_second_request() -> None:
    h = Harness()
    member = joined_static(h)
    assert member == "i-id1"
    assert h.sync("g", 1, member, {member: b"a"}, "i").code is ErrorCode.NONE
    h.check()


def stable_static(h: Harness) -> str:
    member = joined_static(h)
    h.sync("g", 1, member, {member: b"a"}, "i")
    return member


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    h = Harness()
    old = stable_static(h)
    answer = h.join("g", instance="i", version=9)
    new = answer.joined.member_id
    assert (answer.joined.generation_id, answer.joined.leader, answer.joined.skip_assignment) == (1, new, True)
    assert [m.member_id for m in answer.joined.members] == [new]
    assert h.heartbeat("g", 1, old, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat("g", 1, old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("g", 1, new, "i") is ErrorCode.NONE
    assert h.sync("g", 1, new, instance="i").synced.assignment == b"a"
    assert h.commit("g", {("t", 0): 1}, 1, old, "i").code is ErrorCode.FENCED_INSTANCE_ID
    assert h.commit("g", {("t", 0): 1}, 1, new, "i").code is ErrorCode.NONE
    assert h.join("g", old, instance="i").code is ErrorCode.FENCED_INSTANCE_ID
    assert h.join("g", new, instance="other").code is ErrorCode.UNKNOWN_MEMBER_ID
    h.check()


def test_a_leader_that_cannot_skip_the_assignment_is_not_told_that_it_leads() -> None:
    h = Harness()
    old = stable_static(h)
    answer = h.join("g", instance="i", version=8)
    assert answer.joined.leader == old
    assert answer.joined.members == []
    assert not answer.joined.skip_assignment


def test_a_static_member_outlives_a_rebalance_it_missed() -> None:
    h = Harness()
    member = joined_static(h, session_ms=100_000)
    h.sync("g", 1, member, {member: b"a"}, "i")
    _, joining = h.enter("g", session_ms=100_000)
    h.advance(30_000)
    assert joining.code is ErrorCode.NONE
    assert {m.group_instance_id for m in joining.joined.members} == {None, "i"}
    h.check()


def test_a_rebalance_waits_while_only_absent_static_members_are_left() -> None:
    h = Harness()
    member = joined_static(h, session_ms=100_000)
    h.sync("g", 1, member, {member: b"a"}, "i")
    dynamic, joining = h.enter("g", session_ms=100_000)
    h.leave("g", (dynamic, None))
    assert joining.code is ErrorCode.UNKNOWN_MEMBER_ID
    h.advance(35_000)
    assert h.state("g") == "PreparingRebalance"
    h.advance(70_000)
    assert h.state("g") == "Empty"
    h.check()


def test_whoever_waits_under_the_same_instance_id_is_fenced() -> None:
    h = Harness()
    member = joined_static(h)
    h.sync("g", 1, member, {member: b"a"}, "i")
    asked = h.join("g")
    waiting = h.join("g", member, instance="i")
    assert not waiting.done, "someone was given an id and has yet to join"
    back = h.join("g", instance="i")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert not back.done
    h.join("g", asked.joined.member_id)
    assert back.joined.generation_id == 2
    h.check()


def test_a_static_member_that_comes_back_before_the_assignment_starts_over() -> None:
    h = Harness()
    old = joined_static(h)
    parked = h.join("g", instance="i")
    assert parked.joined.generation_id == 2
    assert parked.joined.member_id != old
    assert h.sync("g", 1, old, {old: b"a"}, "i").code is ErrorCode.FENCED_INSTANCE_ID
    h.check()


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    h = Harness()
    stable_static(h)
    assert h.leave("g", ("", "i")) == [ErrorCode.NONE]
    assert h.state("g") == "Empty"


def test_a_return_that_cannot_be_written_did_not_happen() -> None:
    h = Harness()
    old = stable_static(h)
    h.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = h.join("g", instance="i")
    assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    h.fail_with = None
    assert h.heartbeat("g", 1, old, "i") is ErrorCode.NONE
    h.check()
