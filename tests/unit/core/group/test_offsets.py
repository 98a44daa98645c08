"""Offsets: who may commit, what is read back, deleted and expired; the codes are those Kafka 4.3 gave."""

from __future__ import annotations

import sys
from random import Random

import pytest

from mainstem.core.coordinator.effects import ArmTimer, LogRecord
from mainstem.core.group import records
from mainstem.core.group.classic import ClassicGroup
from mainstem.core.group.machine import EXPIRE, EXPIRE_LOOK_MAX, EXPIRE_MAX, EXPIRE_MORE_MS
from mainstem.core.group.offsets import Offsets
from mainstem.core.group.store import CommittedOffset, GroupStore
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from mainstem.protocol.messages.record_framing import GROUP_RECORDS

from .harness import Harness, snapshot, subscription

T0 = ("t", 0)
T1 = ("t", 1)
WEEK_MS = 7 * 24 * 3600 * 1000


def test_a_consumer_without_a_group_commits_to_one_that_exists_by_its_offsets() -> None:
    h = Harness()
    assert h.commit("simple", {T0: 5}, metadata="note", leader_epoch=3).code is ErrorCode.NONE
    assert h.fetch("simple", T0, T1) == {T0: 5, T1: -1}
    assert h.fetch("simple") == {T0: 5}
    listed = h.list_groups()["simple"]
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("", "Empty", "classic")
    held = h.machine.store.offsets_of("simple")[T0]
    assert (held.metadata, held.leader_epoch) == ("note", 3)
    assert h.restart().fetch("simple") == {T0: 5}
    h.check()


def test_the_empty_group_id_can_commit_but_not_join() -> None:
    h = Harness()
    assert h.commit("", {T0: 5}).code is ErrorCode.NONE
    assert h.fetch("") == {T0: 5}


def test_who_may_commit() -> None:
    h = Harness()
    assert h.commit("nobody", {T0: 1}, 1, "m").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert h.commit("nobody", {T0: 1}, 1, "m", version=8).code is ErrorCode.ILLEGAL_GENERATION
    assert h.commit("simple", {T0: 1}, -1, "m").code is ErrorCode.NONE
    assert h.commit("simple", {T0: 1}, 0, "").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("simple", {T0: 1}, -1, "", "i").code is ErrorCode.NONE
    h.join("g", version=3)
    h.advance(0)
    member = "c-id1"
    assert h.commit("g", {T0: 1}, 1, member).code is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.commit("g", {T0: 1}).code is ErrorCode.UNKNOWN_MEMBER_ID
    h.sync("g", 1, member, {member: b"a"})
    assert h.commit("g", {T0: 1}, 1, member).code is ErrorCode.NONE
    assert h.commit("g", {T0: 1}).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("g", {T0: 1}, -1, member).code is ErrorCode.ILLEGAL_GENERATION
    assert h.commit("g", {T0: 1}, 2, member).code is ErrorCode.ILLEGAL_GENERATION
    assert h.commit("g", {T0: 1}, 1, "x").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("g", {T0: 1}, 1, member, "i").code is ErrorCode.UNKNOWN_MEMBER_ID
    h.enter("g")
    assert h.commit("g", {T0: 2}, 1, member).code is ErrorCode.NONE, "before it joins again, it may"
    h.leave("g", (member, None))
    assert h.commit("g", {T0: 1}, 1, member).code is ErrorCode.UNKNOWN_MEMBER_ID
    h.check()


def test_a_commit_keeps_its_member_alive() -> None:
    h = Harness()
    (member,) = h.stable("g")
    for offset in range(4):
        h.advance(9_000)
        assert h.commit("g", {T0: offset}, 1, member).code is ErrorCode.NONE


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    h = Harness()
    assert h.commit("simple", {T0: 1}, metadata="x" * 4096).code is ErrorCode.NONE
    assert h.commit("simple", {T0: 2}, metadata="x" * 4097).code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.fetch("simple") == {T0: 1}


def test_a_refused_commit_leaves_an_empty_group_as_in_kafka_until_the_next_clean_up() -> None:
    h = Harness()
    assert h.commit("simple", {T0: 2}, metadata="x" * 4097).code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.list_groups()["simple"].group_state == "Empty"
    h.advance(1_200_000)
    assert "simple" not in h.list_groups()
    h.check()


def test_records_are_those_of_kafka() -> None:
    h = Harness()
    h.commit("simple", {T0: 5}, metadata="x", leader_epoch=3)
    h.commit("old", {T0: 5}, metadata="x", leader_epoch=3, retention_ms=1000, version=2)
    versions = [int.from_bytes(record.value[:2], "big") for record in h.log if record.value is not None]
    assert versions == [4, 1]
    assert h.log[0].key == b"\x00\x01\x00\x06simple\x00\x01t\x00\x00\x00\x00"
    h.stable("g")
    assert {int.from_bytes(r.value[:2], "big") for r in h.log[2:] if r.value is not None} == {3}


def test_a_deleted_group_stays_deleted() -> None:
    h = Harness()
    h.commit("g", {T0: 5, T1: 6})
    assert h.delete_group("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert h.delete_group("g") is ErrorCode.NONE
    assert h.fetch("g") == {}
    assert "g" not in h.list_groups()
    assert h.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert "g" not in h.restart().list_groups()
    h.check()


def test_a_group_with_members_cannot_be_deleted() -> None:
    h = Harness()
    h.stable("g")
    assert h.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    h.enter("g")
    assert h.delete_group("g") is ErrorCode.NON_EMPTY_GROUP


def test_a_deletion_that_cannot_be_written_did_not_happen() -> None:
    h = Harness()
    h.commit("g", {T0: 5})
    h.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.delete_group("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.commit("new", {T0: 5}).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    h.fail_with = None
    assert h.fetch("g") == {T0: 5}
    assert list(h.list_groups()) == ["g"]
    h.check()


def test_an_expiry_that_cannot_be_written_did_not_happen() -> None:
    h = Harness()
    h.commit("g", {T0: 5})
    h.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    h.advance(WEEK_MS + 600_000)
    h.fail_with = None
    assert h.fetch("g") == {T0: 5}
    assert list(h.list_groups()) == ["g"]
    h.check()
    h.advance(600_000)
    assert h.list_groups() == {}
    h.check()


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    h = Harness()
    (member,) = h.stable("g", protocols={"range": subscription("t")})
    h.commit("g", {T0: 1, ("u", 0): 2}, 1, member)
    assert h.delete_offsets("g", T0, ("u", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert h.fetch("g") == {T0: 1}
    assert h.delete_offsets("nobody", T0) is ErrorCode.GROUP_ID_NOT_FOUND
    h.leave("g", (member, None))
    assert h.delete_offsets("g", T0, T1) == [ErrorCode.NONE, ErrorCode.NONE]
    h.stable("connect", protocol_type="connect")
    assert h.delete_offsets("connect", T0) is ErrorCode.NON_EMPTY_GROUP
    h.check()


def test_offsets_go_with_their_topic() -> None:
    h = Harness()
    h.commit("a", {T0: 1, ("u", 0): 2})
    h.commit("b", {T1: 1})
    h.take(h.machine.topics_deleted(frozenset({"t"})))
    assert h.fetch("a") == {("u", 0): 2}
    assert h.fetch("b") == {}
    h.check()


def test_offsets_of_a_consumer_without_a_group_expire_by_their_commit() -> None:
    h = Harness()
    h.commit("simple", {T0: 1})
    h.advance(WEEK_MS // 2)
    h.commit("simple", {T1: 1})
    h.advance(WEEK_MS // 2 + 600_000)
    assert h.fetch("simple") == {T1: 1}
    h.advance(WEEK_MS)
    assert "simple" not in h.list_groups()
    assert snapshot(h.restart().machine.store) == ({}, {}, {})
    h.check()


def test_offsets_of_a_group_expire_by_the_time_it_has_been_empty() -> None:
    h = Harness()
    (member,) = h.stable("g", session_ms=1_800_000)
    h.commit("g", {T0: 1}, 1, member)
    for _ in range(400):
        h.advance(1_750_000)
        assert h.heartbeat("g", 1, member) is ErrorCode.NONE
    assert h.fetch("g") == {T0: 1}, "subscribed: kept, however old"
    h.leave("g", (member, None))
    h.advance(WEEK_MS - 600_000)
    assert h.fetch("g") == {T0: 1}
    h.advance(1_200_000)
    assert h.fetch("g") == {}
    assert "g" not in h.list_groups()


def test_offsets_of_topics_nobody_subscribes_to_any_more_expire() -> None:
    h = Harness()
    (member,) = h.stable("g", session_ms=1_800_000)
    h.commit("g", {("old", 0): 1, T0: 1}, 1, member)
    for _ in range(400):
        h.advance(1_750_000)
        h.heartbeat("g", 1, member)
    assert h.fetch("g") == {T0: 1}


def test_an_offset_with_an_expiry_of_its_own_goes_at_that_time() -> None:
    h = Harness()
    h.commit("old", {T0: 1}, retention_ms=1_000_000, version=2)
    h.advance(600_000)
    assert h.fetch("old") == {T0: 1}
    h.advance(600_000)
    assert h.fetch("old") == {}


def test_an_offset_in_an_open_transaction_is_unstable_and_lasts() -> None:
    h = Harness()
    h.commit("g", {T0: 1})
    staged = staged_commit("g", "t", 0, 9)
    h.machine.replay(staged.key, staged.value, 77)
    h.machine.keep()
    assert h.fetch("g", T0, require_stable=True) == {T0: -ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert h.fetch("g", T0) == {T0: 1}
    h.advance(2 * WEEK_MS)
    assert h.fetch("g", T0) == {T0: 1}
    h.machine.replay_marker(77, committed=True)
    assert h.fetch("g", T0, require_stable=True) == {T0: 9}


def test_a_group_that_has_offsets_in_an_open_transaction_alone_is_there_after_a_take_over() -> None:
    h = Harness()
    staged = staged_commit("g", "t", 0, 9)
    h.machine.replay(staged.key, staged.value, 77)
    h.machine.keep()
    h.take(h.machine.loaded(h.now_ms))
    assert list(h.list_groups()) == ["g"]
    h.machine.replay_marker(77, committed=True)
    assert h.delete_group("g") is ErrorCode.NONE
    assert h.fetch("g", T0) == {T0: -1}


def test_what_offsets_are_staged_is_known_whatever_else_is_staged() -> None:
    """Who asks for a group's offsets does not wait for a walk through every open transaction."""
    h = Harness()

    def stage(producer_id: int) -> None:
        staged = staged_commit(f"g{producer_id}", "t", 0, 9)
        h.machine.replay(staged.key, staged.value, producer_id)
        h.machine.keep()

    def calls() -> int:
        count = 0

        def called(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(called)
        try:
            h.machine.store.has_staged("g", "t", 0)
            h.machine.store.has_any_staged("g")
            h.machine.offsets.tombstones("g")
        finally:
            sys.setprofile(None)
        return count

    stage(1)
    with_one = calls()
    for producer_id in range(2, 100):
        stage(producer_id)
    assert calls() == with_one


def test_who_has_staged_what_follows_every_change() -> None:
    rng = Random(6)
    store = GroupStore()
    for step in range(2000):
        group, partition, producer_id = rng.choice("ab"), rng.randrange(3), rng.randrange(4)
        match rng.randrange(6):
            case 0:
                store.replay_marker(producer_id, committed=rng.random() < 0.5)
            case 1:
                tombstone = records.offset_tombstone(group, "t", partition)
                store.replay(tombstone.key, tombstone.value)
            case 2:
                store.revert()
            case 3:
                store.keep()
            case _:
                staged = staged_commit(group, "t", partition, step)
                store.replay(staged.key, staged.value, producer_id)
        by_group: dict[str, dict[tuple[str, int], set[int]]] = {}
        for each, places in store.staged.items():
            for place in places:
                by_group.setdefault(place[0], {}).setdefault(place[1:], set()).add(each)
        assert {g: {p: set(s) for p, s in places.items()} for g, places in store.stagers.items()} == by_group


def test_many_offsets_expire_a_few_at_a_time() -> None:
    """Others have to be served meanwhile."""
    h = Harness()
    for group in ("a", "b"):
        h.commit(group, {("t", partition): 1 for partition in range(EXPIRE_MAX - 10)})
    h.advance(WEEK_MS - 600_000)
    before = len(h.log)
    while len(h.log) == before:
        h.advance(60_000)
    assert len(h.log) - before <= EXPIRE_MAX + 1
    assert len(h.fetch("b")) > 0
    h.advance(1000)
    assert h.list_groups() == {}
    assert snapshot(h.restart().machine.store) == ({}, {}, {})
    h.check()


def test_offsets_that_do_not_expire_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each once: those that do expire may lie behind them."""
    h = Harness()
    each = EXPIRE_LOOK_MAX // 10
    for number in range(35):
        h.commit(f"g{number}", {("t", partition): 1 for partition in range(each)})
    looked: list[int] = []
    original = Offsets._has_expired

    def has_expired(self: Offsets, group: ClassicGroup, committed: CommittedOffset, now_ms: int) -> bool:
        looked[-1] += 1
        return original(self, group, committed, now_ms)

    monkeypatch.setattr(Offsets, "_has_expired", has_expired)
    delay_ms = EXPIRE_MORE_MS
    while delay_ms == EXPIRE_MORE_MS:
        looked.append(0)
        (armed,) = h.machine.timer_fired((EXPIRE,), h.now_ms).effects
        assert isinstance(armed, ArmTimer)
        delay_ms = armed.delay_ms
    assert max(looked) <= EXPIRE_LOOK_MAX + each
    assert (sum(looked), delay_ms) == (35 * each, h.machine.config.offsets_retention_check_ms)


def test_an_aborted_transaction_leaves_the_offset_as_it_was() -> None:
    h = Harness()
    h.commit("g", {T0: 1})
    staged = staged_commit("g", "t", 0, 9)
    h.machine.replay(staged.key, staged.value, 77)
    h.machine.replay_marker(77, committed=False)
    h.machine.replay_marker(78, committed=True)
    assert h.fetch("g", T0, require_stable=True) == {T0: 1}


def test_an_offset_that_is_deleted_goes_from_the_open_transaction_too() -> None:
    """As in Kafka, also where the transaction is all that has it."""
    h = Harness()
    h.commit("g", {T1: 1})
    staged = staged_commit("g", "t", 0, 9)
    h.machine.replay(staged.key, staged.value, 77)
    h.machine.keep()
    assert h.delete_offsets("g", T0) == [ErrorCode.NONE]
    assert h.fetch("g", T0, require_stable=True) == {T0: -1}
    h.machine.replay_marker(77, committed=True)
    assert h.fetch("g", T0, require_stable=True) == {T0: -1}
    assert h.fetch("g", T1) == {T1: 1}


def staged_commit(group: str, topic: str, partition: int, offset: int) -> LogRecord:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
    return records.offset_commit(group, topic, partition, value)


def test_old_records_are_read() -> None:
    h = Harness()
    key = GROUP_RECORDS.encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    for version in range(5):
        value = OffsetCommitValue(offset=version, metadata="m", commit_timestamp=1)
        h.machine.replay(key, GROUP_RECORDS.encode_value(value, version))
        assert h.fetch("g") == {T0: version}
