"""Stories of members coming, staying and going; the answers are those that Kafka 4.3 gave to the same requests."""

from __future__ import annotations

from mainstem.core.group.classic import in_hash_map_order
from mainstem.protocol.errors import ErrorCode

from .harness import Harness, subscription


def test_a_first_member_is_given_an_id_and_must_come_back_with_it() -> None:
    h = Harness()
    asked = h.join("g")
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    assert asked.joined.member_id == "c-id1"
    assert h.state("g") == "Empty"
    joined = h.join("g", "c-id1")
    assert not joined.done
    h.advance(0)
    answer = joined.joined
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "c-id1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [m.member_id for m in answer.members] == ["c-id1"]
    synced = h.sync("g", 1, "c-id1", {"c-id1": b"everything"})
    assert synced.synced.assignment == b"everything"
    assert h.state("g") == "Stable"
    h.check()


def test_before_version_4_a_member_is_taken_at_once() -> None:
    h = Harness()
    joined = h.join("g", version=3)
    h.advance(0)
    assert joined.code is ErrorCode.NONE
    assert joined.joined.generation_id == 1


def test_an_id_that_nobody_uses_is_forgotten_with_its_session() -> None:
    h = Harness()
    member = h.join("g").joined.member_id
    h.advance(10_000)
    assert h.join("g", member).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_join_is_refused_for() -> None:
    h = Harness()
    assert h.join("").code is ErrorCode.INVALID_GROUP_ID
    assert h.join("g", session_ms=5_999).code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert h.join("g", session_ms=1_800_001).code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert h.join("nobody", "known").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.join("nobody", "known").joined.member_id == "known"
    assert "nobody" not in h.list_groups()
    assert h.join("g", protocol_type="").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("g", protocols={}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    h.stable("g")
    assert h.join("g", protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("g", protocols={"other": b""}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("g", "stranger").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.join("g", "stranger", instance="i").code is ErrorCode.UNKNOWN_MEMBER_ID
    h.check()


def test_an_id_that_was_only_given_out_cannot_come_back_as_a_static_member() -> None:
    h = Harness()
    member = h.join("g").joined.member_id
    assert h.join("g", member, instance="i").code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_first_rebalance_waits_as_long_as_others_join() -> None:
    h = Harness(initial_rebalance_delay_ms=3_000)
    first, a = h.enter("g", rebalance_ms=10_000)
    h.advance(2_000)
    second, b = h.enter("g", rebalance_ms=10_000)
    h.advance(1_000)
    assert not a.done
    h.advance(3_000)
    assert a.code is b.code is ErrorCode.NONE
    assert {m.member_id for m in a.joined.members} == {first, second}
    assert b.joined.members == []


def test_a_first_rebalance_waits_no_longer_than_its_timeout() -> None:
    h = Harness(initial_rebalance_delay_ms=3_000)
    _, first = h.enter("g", rebalance_ms=7_000)
    for _ in range(10):
        h.advance(1_000)
        if not first.done:
            h.enter("g", rebalance_ms=7_000)
    assert first.code is ErrorCode.NONE


def test_a_member_that_joins_makes_the_others_join_again() -> None:
    h = Harness()
    (old,) = h.stable("g")
    new, joining = h.enter("g")
    assert h.state("g") == "PreparingRebalance"
    assert h.heartbeat("g", 1, old) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.sync("g", 1, old).code is ErrorCode.REBALANCE_IN_PROGRESS
    again = h.join("g", old)
    assert again.joined.generation_id == joining.joined.generation_id == 2
    assert again.joined.leader == old
    waiting = h.sync("g", 2, new)
    assert not waiting.done
    leader = h.sync("g", 2, old, {old: b"a", new: b"b"})
    assert (leader.synced.assignment, waiting.synced.assignment) == (b"a", b"b")
    h.check()


def test_a_member_without_an_assignment_gets_an_empty_one_and_strangers_get_none() -> None:
    h = Harness()
    h.join("g", version=3)
    h.advance(0)
    synced = h.sync("g", 1, "c-id1", {"ghost": b"x"})
    assert synced.synced.assignment == b""
    assert [m.member_id for m in h.machine.store.metadata["g"].members] == ["c-id1"]


def test_who_does_not_join_again_in_time_is_out() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2, session_ms=60_000)
    again = h.join("g", leader, session_ms=60_000)
    assert not again.done
    h.advance(29_999)
    assert not again.done
    h.advance(1)
    assert [m.member_id for m in again.joined.members] == [leader]
    assert h.heartbeat("g", again.joined.generation_id, follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_is_removed() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2)
    generation = h.machine.groups["g"].generation
    for _ in range(3):
        h.advance(6_000)
        code = h.heartbeat("g", generation, leader)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    assert follower not in h.machine.groups["g"].members
    assert [m.member_id for m in h.join("g", leader).joined.members] == [leader]
    h.check()


def test_a_group_whose_members_all_fall_silent_is_empty() -> None:
    h = Harness()
    h.stable("g", 2)
    h.advance(60_000)
    assert h.state("g") == "Empty"
    assert h.machine.store.metadata["g"].members == []
    h.check()


def test_a_new_member_is_not_waited_for_for_ever() -> None:
    h = Harness(initial_rebalance_delay_ms=0)
    h.stable("g", session_ms=1_000_000, rebalance_ms=10_000_000)
    _, joining = h.enter("g", session_ms=1_000_000, rebalance_ms=10_000_000)
    h.advance(299_999)
    assert not joining.done
    h.advance(1)
    assert joining.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_does_not_lose_its_session() -> None:
    h = Harness()
    leader, _ = h.stable("g", 2, session_ms=6_000, rebalance_ms=30_000)
    waiting = h.join("g", leader, session_ms=6_000, rebalance_ms=30_000)
    h.advance(5_999)
    assert not waiting.done
    h.advance(10_000)
    assert waiting.code is ErrorCode.NONE


def test_leaving() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2)
    assert h.leave("g", ("stranger", None), ("", None), ("", "i"), (follower, "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 4
    assert h.state("g") == "Stable"
    assert h.leave("g", (follower, None), (follower, None)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert h.state("g") == "PreparingRebalance"
    assert h.leave("g", (leader, None)) == [ErrorCode.NONE]
    assert h.state("g") == "Empty"
    assert h.leave("nobody", ("x", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    h.check()


def test_who_leaves_while_it_waits_is_answered() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2)
    again = h.join("g", leader)
    assert h.leave("g", (leader, None)) == [ErrorCode.NONE]
    assert again.code is ErrorCode.UNKNOWN_MEMBER_ID
    rejoined = h.join("g", follower)
    assert rejoined.joined.leader == follower
    asking = h.join("g", version=3)
    waiting = h.join("g", follower)
    generation = waiting.joined.generation_id
    syncing = h.sync("g", generation, asking.joined.member_id)
    assert h.leave("g", (asking.joined.member_id, None)) == [ErrorCode.NONE]
    assert syncing.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_takes_the_protocol_most_members_prefer() -> None:
    h = Harness()
    a, first = h.enter("g", protocols={"range": b"1", "sticky": b"2"})
    b, second = h.enter("g", protocols={"sticky": b"3", "range": b"4"})
    c, third = h.enter("g", protocols={"sticky": b"5", "range": b"6", "mine": b"7"})
    h.advance(0)
    assert first.joined.protocol_name == "sticky"
    assert {m.member_id: m.metadata for m in first.joined.members} == {a: b"2", b: b"3", c: b"5"}
    assert second.joined.members == third.joined.members == []


def test_a_tie_falls_as_in_kafka() -> None:
    h = Harness()
    _, first = h.enter("g", protocols={"range": b"", "sticky": b""})
    h.enter("g", protocols={"sticky": b"", "range": b""})
    h.advance(0)
    assert first.joined.protocol_name == "sticky"


def test_the_order_of_a_hash_map_is_javas() -> None:
    # As Java 17 prints the key set of a HashMap.
    names = ["roundrobin", "range", "cooperative-sticky", "sticky"]
    assert in_hash_map_order(names) == ["sticky", "range", "roundrobin", "cooperative-sticky"]
    many = in_hash_map_order(f"p{number}" for number in range(30))
    assert many[:15] == [*(f"p{number}" for number in range(11)), "p12", "p11", "p14", "p13"]


def test_joining_again_without_a_change_repeats_the_answer() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2)
    generation = h.machine.groups["g"].generation
    again = h.join("g", follower)
    assert again.joined.generation_id == generation
    assert h.state("g") == "Stable"
    h.join("g", leader)
    assert h.state("g") == "PreparingRebalance", "a leader that joins again wants a rebalance"
    h.join("g", follower)
    assert h.state("g") == "CompletingRebalance"
    repeated = h.join("g", leader)
    assert {m.member_id for m in repeated.joined.members} == {leader, follower}
    changed = h.join("g", follower, protocols={"range": subscription("t", "u")})
    assert h.state("g") == "PreparingRebalance"
    assert not changed.done


def test_a_member_that_asks_twice_has_its_first_question_answered() -> None:
    h = Harness()
    leader, _ = h.stable("g", 2)
    first = h.join("g", leader)
    second = h.join("g", leader)
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.done
    h.check()


def test_sync_and_heartbeat_are_refused_to_whoever_is_not_of_this_generation() -> None:
    h = Harness()
    (member,) = h.stable("g")
    assert h.sync("", 1, member).code is ErrorCode.INVALID_GROUP_ID
    assert h.sync("nobody", 1, member).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 1, "x").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 2, member).code is ErrorCode.ILLEGAL_GENERATION
    assert h.sync("g", 1, member, instance="i").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 1, member, protocol_type="x").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.sync("g", 1, member, protocol="x").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.heartbeat("", 1, member) is ErrorCode.INVALID_GROUP_ID
    assert h.heartbeat("nobody", 1, member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("g", 1, "x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("g", 1, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("g", -1, member) is ErrorCode.ILLEGAL_GENERATION
    assert h.heartbeat("g", 2, member) is ErrorCode.ILLEGAL_GENERATION
    assert h.heartbeat("g", 1, member) is ErrorCode.NONE


def test_a_full_group_takes_no_more_and_keeps_those_it_has() -> None:
    h = Harness(size_max=2)
    leader, follower = h.stable("g", 2)
    assert h.join("g").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    h.join("g", leader)
    again = h.join("g", follower)
    assert again.code is ErrorCode.NONE
    h.check()


def test_a_group_that_is_too_large_after_a_take_over_shrinks() -> None:
    h = Harness()
    members = h.stable("g", 3)
    smaller = Harness(list(h.log), h.now_ms, size_max=2)
    assert smaller.state("g") == "PreparingRebalance"
    answers = [smaller.join("g", member) for member in members]
    smaller.advance(30_000)
    assert sorted(answer.code for answer in answers) == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    smaller.check()


def test_an_emptied_group_can_be_of_another_type() -> None:
    h = Harness()
    (member,) = h.stable("g")
    h.leave("g", (member, None))
    assert h.describe("g").protocol_type == "consumer"
    joined = h.join("g", version=3, protocol_type="connect")
    h.advance(0)
    assert joined.joined.generation_id == 3
    assert h.describe("g").protocol_type == "connect"


def test_a_coordinator_that_takes_over_goes_on_with_the_same_generation() -> None:
    h = Harness()
    leader, follower = h.stable("g", 2)
    generation = h.machine.groups["g"].generation
    other = h.restart()
    assert other.state("g") == "Stable"
    assert other.heartbeat("g", generation, leader) is ErrorCode.NONE
    assert (
        other.sync("g", generation, follower).synced.assignment == h.sync("g", generation, follower).synced.assignment
    )
    other.advance(6_000)
    assert other.heartbeat("g", generation, leader) is ErrorCode.NONE
    other.advance(4_000)
    assert other.state("g") == "PreparingRebalance", "the silent one is missed"
    assert list(other.machine.groups["g"].members) == [leader]
    other.check()


def test_an_unreadable_subscription_leaves_a_group_that_works() -> None:
    h = Harness()
    h.stable("g", protocols={"range": b"\x00\x00\x7f\xff\xff\xff"})
    assert h.machine.groups["g"].subscribed_topics is None
    assert h.machine.groups["g"].is_subscribed_to("anything")
