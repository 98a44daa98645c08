"""Bugs that others had in the coordination of classic groups, by their numbers."""

from __future__ import annotations

from mainstem.core.coordinator.effects import LogRecord
from mainstem.core.group import records
from mainstem.core.group.store import GroupStore
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    GroupMetadataValue,
    OffsetCommitValue,
)
from mainstem.protocol.messages.k11_join_group import JoinGroupResponse
from mainstem.protocol.messages.record_framing import GROUP_RECORDS
from mainstem.protocol.messages.share_group_records import ShareGroupMetadataKey, ShareGroupMetadataValue
from tests.unit.core.group.harness import START_MS, Harness, snapshot

T0 = ("t", 0)
WEEK_MS = 7 * 24 * 3600 * 1000


def test_kafka_12890_a_group_does_not_stay_in_completing_rebalance() -> None:
    """Members that were told of a generation and never sync, the leader among them, are waited for only so long."""
    h = Harness()
    leader, first = h.enter("g", session_ms=1_000_000)
    follower, second = h.enter("g", session_ms=1_000_000)
    h.advance(0)
    assert first.joined.leader == leader
    waiting = h.sync("g", 1, follower)
    for _ in range(4):
        h.advance(7_000)
        h.heartbeat("g", 1, leader)
        assert h.state("g") == "CompletingRebalance"
    h.advance(7_000)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in h.machine.groups["g"].members
    again = h.join("g", follower, session_ms=1_000_000)
    assert again.joined.leader == follower
    assert h.sync("g", again.joined.generation_id, follower, {follower: b"all"}).code is ErrorCode.NONE
    assert second.code is ErrorCode.NONE
    h.check()


def test_kafka_12890_a_follower_that_never_syncs_leaves_a_stable_group() -> None:
    h = Harness()
    leader, _ = h.enter("g", session_ms=1_000_000)
    follower, _ = h.enter("g", session_ms=1_000_000)
    h.advance(0)
    h.sync("g", 1, leader, {leader: b"a", follower: b"b"})
    assert h.state("g") == "Stable"
    h.advance(30_000)
    assert follower not in h.machine.groups["g"].members
    assert h.state("g") == "PreparingRebalance"
    h.check()


def test_kafka_13636_offsets_do_not_expire_during_a_rebalance() -> None:
    """The time since the group was last empty, or since a commit, says nothing while members are joining."""
    h = Harness(offsets_retention_ms=60_000, offsets_retention_check_ms=1_000)
    (member,) = h.stable("g", session_ms=300_000, rebalance_ms=300_000)
    h.commit("g", {T0: 5, ("other", 0): 7}, 1, member)
    h.enter("g", session_ms=300_000, rebalance_ms=300_000)
    for _ in range(40):
        h.advance(5_000)
        assert h.state("g") == "PreparingRebalance"
        assert h.fetch("g") == {T0: 5, ("other", 0): 7}
    h.check()


def test_kafka_14422_no_answer_has_a_field_its_version_lacks() -> None:
    """A static leader that comes back with an old JoinGroup is answered in that version, and can expire."""
    for version in range(5, 10):
        h = Harness()
        joined = h.join("g", instance="i", version=version)
        h.advance(0)
        member = joined.joined.member_id
        h.sync("g", 1, member, {member: b"a"}, "i")
        back = h.join("g", instance="i", version=version)
        answer = back.joined
        if answer.protocol_name is None:
            answer.protocol_name = ""
        assert JoinGroupResponse.decode(answer.encode(version), version).member_id == answer.member_id
        h.advance(10_000)
        assert h.state("g") == "Empty"


def test_kafka_10284_a_static_member_that_came_back_is_known_after_a_failover() -> None:
    h = Harness()
    joined = h.join("g", instance="i")
    h.advance(0)
    old = joined.joined.member_id
    h.sync("g", 1, old, {old: b"a"}, "i")
    new = h.join("g", instance="i").joined.member_id
    other = h.restart()
    assert other.heartbeat("g", 1, new, "i") is ErrorCode.NONE
    assert other.heartbeat("g", 1, old, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert other.sync("g", 1, new, instance="i").synced.assignment == b"a"
    other.check()


def test_kafka_10284_the_new_id_is_not_told_before_it_is_committed() -> None:
    h = Harness()
    joined = h.join("g", instance="i")
    h.advance(0)
    old = joined.joined.member_id
    h.sync("g", 1, old, {old: b"a"}, "i")
    h.held = []
    back = h.join("g", instance="i")
    assert not back.done
    h.commit_held()
    assert back.code is ErrorCode.NONE


def test_kafka_8225_one_instance_id_is_one_member() -> None:
    h = Harness()
    h.join("g", instance="i")
    h.join("g", instance="i")
    h.join("g", instance="i")
    h.advance(0)
    assert len(h.machine.groups["g"].members) == 1
    h.check()


def test_kafka_8069_a_failover_does_not_bring_expiry_nearer() -> None:
    """Offsets of every version of the record keep the times they had."""
    h = Harness()
    h.commit("plain", {T0: 1})
    h.commit("timed", {T0: 1}, retention_ms=2 * WEEK_MS, version=2)
    (member,) = h.stable("g")
    h.commit("g", {T0: 1}, 1, member)
    h.advance(WEEK_MS - 3_600_000)
    h.check()
    other = h.restart()
    other.advance(600_000)
    assert [other.fetch(group) for group in ("plain", "timed", "g")] == [{T0: 1}] * 3
    other.advance(WEEK_MS)
    assert [other.fetch(group) for group in ("plain", "timed", "g")] == [{}, {T0: 1}, {}]


def test_kafka_8069_records_without_times_expire_by_their_commit() -> None:
    """A group record before version 2 has no time; the commit's own counts, which is not 1970."""
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None, members=[])
    key = records.group_tombstone("g").key
    commit = OffsetCommitValue(offset=7, metadata="", commit_timestamp=START_MS - 3_600_000)
    log = [
        LogRecord(key, GROUP_RECORDS.encode_value(value, 1)),
        LogRecord(records.offset_tombstone("g", "t", 0).key, GROUP_RECORDS.encode_value(commit, 3)),
    ]
    h = Harness(log)
    h.advance(WEEK_MS - 4_200_000)
    assert h.fetch("g") == {T0: 7}
    h.advance(1_200_000)
    assert h.fetch("g") == {}


def test_kafka_17306_replay_takes_any_records_in_any_order() -> None:
    """Tombstones for what never was, members of groups that are not there, and groups of every protocol."""
    consumer = GROUP_RECORDS.encode_key(ConsumerGroupMetadataKey(group_id="c"))
    share = GROUP_RECORDS.encode_key(ShareGroupMetadataKey(group_id="s"))
    log = [
        records.group_tombstone("nobody"),
        records.offset_tombstone("nobody", "t", 0),
        LogRecord(GROUP_RECORDS.encode_key(ConsumerGroupMemberMetadataKey(group_id="c", member_id="m")), None),
        LogRecord(GROUP_RECORDS.encode_key(ConsumerGroupTargetAssignmentMemberKey(group_id="c", member_id="m")), None),
        LogRecord(GROUP_RECORDS.encode_key(ConsumerGroupCurrentMemberAssignmentKey(group_id="c", member_id="m")), None),
        LogRecord(consumer, GROUP_RECORDS.encode_value(ConsumerGroupMetadataValue(epoch=4), 0)),
        LogRecord(share, GROUP_RECORDS.encode_value(ShareGroupMetadataValue(epoch=1, metadata_hash=0), 0)),
        records.offset_commit("c", "t", 0, OffsetCommitValue(offset=9, metadata="", commit_timestamp=START_MS)),
    ]
    h = Harness(log)
    listed = h.list_groups()
    assert {g: (each.group_type, each.group_state) for g, each in listed.items()} == {
        "c": ("consumer", "Empty"),
        "s": ("share", "Empty"),
    }
    assert h.fetch("c") == {T0: 9}
    backwards = GroupStore()
    for record in reversed(log):
        backwards.replay(record.key, record.value)
    assert snapshot(backwards) == snapshot(h.machine.store)
    h.check()


def test_kafka_17306_a_group_of_another_protocol_gives_way_to_a_classic_one() -> None:
    consumer = GROUP_RECORDS.encode_key(ConsumerGroupMetadataKey(group_id="c"))
    share = GROUP_RECORDS.encode_key(ShareGroupMetadataKey(group_id="s"))
    log = [
        LogRecord(consumer, GROUP_RECORDS.encode_value(ConsumerGroupMetadataValue(epoch=4), 0)),
        LogRecord(share, GROUP_RECORDS.encode_value(ShareGroupMetadataValue(epoch=1, metadata_hash=0), 0)),
        records.offset_commit("c", "t", 0, OffsetCommitValue(offset=9, metadata="", commit_timestamp=START_MS)),
    ]
    h = Harness(log)
    h.stable("c")
    assert h.list_groups()["c"].group_type == "classic"
    assert h.fetch("c") == {T0: 9}
    assert h.join("s").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = h.restart()
    assert other.list_groups()["c"].group_type == "classic"
    assert other.state("c") == "Stable"
    assert other.delete_group("s") is ErrorCode.NONE
    assert "s" not in other.restart().list_groups()
    other.check()


def test_redpanda_4900_a_deleted_group_stays_deleted_after_a_restart() -> None:
    h = Harness()
    (member,) = h.stable("g")
    h.commit("g", {T0: 5}, 1, member)
    h.leave("g", (member, None))
    assert h.delete_group("g") is ErrorCode.NONE
    other = h.restart()
    assert other.list_groups() == {}
    assert other.fetch("g") == {}
    assert other.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_redpanda_17260_the_leader_epoch_of_a_commit_survives_a_failover() -> None:
    h = Harness()
    h.commit("g", {T0: 5}, leader_epoch=12, metadata="note")
    held = h.restart().machine.store.offsets_of("g")[T0]
    assert (held.leader_epoch, held.metadata) == (12, "note")


def test_redpanda_31483_the_later_of_a_transaction_and_a_plain_commit_wins_everywhere() -> None:
    """Live and replayed state must resolve an offset alike, also when the plain commit is expired or compacted."""
    plain = records.offset_commit("g", "t", 0, OffsetCommitValue(offset=2, metadata="", commit_timestamp=2))
    staged = records.offset_commit("g", "t", 0, OffsetCommitValue(offset=1, metadata="", commit_timestamp=1))
    before, after = GroupStore(), GroupStore()
    before.replay(plain.key, plain.value)
    before.replay(staged.key, staged.value, 9)
    before.replay_marker(9, committed=True)
    assert before.offsets_of("g")[T0].offset == 1
    after.replay(staged.key, staged.value, 9)
    after.replay(plain.key, plain.value)
    after.replay_marker(9, committed=True)
    assert after.offsets_of("g")[T0].offset == 2
    removed = GroupStore()
    removed.replay(staged.key, staged.value, 9)
    removed.replay(plain.key, None)
    removed.replay_marker(9, committed=True)
    assert not removed.holds("g")
