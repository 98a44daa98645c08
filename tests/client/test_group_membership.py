"""Consumers of a group share partitions: each has one reader at a time, and what was committed is not read again."""

import threading
import time

import pytest

from mainstem.client.consumer_sync import Consumer
from mainstem.client.errors import CommitFailedError, ConsumerFencedError, KafkaError
from mainstem.client.listeners import RebalanceListener
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from tests.client.consumer_support import Target, have_all, new_group, read, target, until, values

__all__ = ["target"]

EAGER = ["range", "roundrobin", "sticky"]
COOPERATIVE = ["cooperative-sticky"]


class Told(RebalanceListener):
    """Writes down what it is told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(tp.partition for tp in partitions)))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(tp.partition for tp in partitions)))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(tp.partition for tp in partitions)))


@pytest.mark.parametrize("strategy", [*EAGER, *COOPERATIVE])
def test_members_share_partitions_through_joins_and_leaves(target: Target, strategy: str) -> None:
    topic, group = target.topic(6), new_group()
    options = {"partition_assignment_strategy": strategy}
    with target.member(group, topic, **options) as first:
        until(lambda: have_all([first], topic, 6), first)
        with target.member(group, topic, **options) as second:
            until(lambda: have_all([first, second], topic, 6), first, second)
            assert len(first.assignment) == 3
            with target.member(group, topic, **options) as third:
                until(lambda: have_all([first, second, third], topic, 6), first, second, third)
                assert {len(each.assignment) for each in (first, second, third)} == {2}
            until(lambda: have_all([first, second], topic, 6), first, second)
        until(lambda: have_all([first], topic, 6), first)


def test_the_next_reader_goes_on_from_what_was_committed(target: Target) -> None:
    topic, group = target.topic(), new_group()
    written = target.fill(topic, 0, 100)
    tp = TopicPartition(topic, 0)
    with target.member(group, topic) as consumer:
        assert values(read(consumer, 40)) == written[:40]
        consumer.commit()
        assert consumer.committed([tp]) == {tp: OffsetAndMetadata(40, "", 0)}
        read(consumer, 10)
    with target.member(group, topic) as consumer:
        assert values(read(consumer, 60)) == written[40:]
        consumer.commit({tp: OffsetAndMetadata(7, "a note")})
        committed = consumer.committed([tp, TopicPartition(topic, 99)])
        assert committed[tp] == OffsetAndMetadata(7, "a note", -1)
        assert committed[TopicPartition(topic, 99)] is None
    with target.member(group, topic) as consumer:
        assert values(read(consumer, 1)) == [written[7]]


def test_iterating_commits_what_was_given_out_and_no_more(target: Target) -> None:
    topic, group = target.topic(), new_group()
    written = target.fill(topic, 0, 50)
    with target.member(group, topic) as consumer:
        for record in consumer:
            if record.offset == 19:
                break
        consumer.commit()
    with target.member(group, topic) as consumer:
        assert values(read(consumer, 1)) == [written[20]]


def test_automatic_commits_come_by_themselves_and_at_the_end(target: Target) -> None:
    topic, group = target.topic(), new_group()
    written = target.fill(topic, 0, 100)
    tp = TopicPartition(topic, 0)
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with target.member(group, topic, **options) as consumer, target.consumer(group_id=group) as watcher:
        assert len(read(consumer, 30)) == 30
        consumer.pause(tp)
        until(lambda: watcher.committed([tp])[tp] == OffsetAndMetadata(30, "", 0), consumer)
        consumer.resume(tp)
        assert len(read(consumer, 30)) == 30
    with target.member(group, topic) as consumer:
        assert values(read(consumer, 40)) == written[60:]


def test_an_eager_member_gives_everything_back_before_it_gets_anything(target: Target) -> None:
    topic, group, told = target.topic(4), new_group(), Told()
    with target.member(group, partition_assignment_strategy="range") as first:
        first.subscribe([topic], listener=told)
        until(lambda: have_all([first], topic, 4), first)
        with target.member(group, topic, partition_assignment_strategy="range") as second:
            until(lambda: have_all([first, second], topic, 4), first, second)
            half = sorted(tp.partition for tp in first.assignment)
    assert told.calls == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", half),
        ("revoked", half),
    ]


def test_a_cooperative_member_gives_back_only_what_others_get_and_reads_on(target: Target) -> None:
    topic, group, told = target.topic(4), new_group(), Told()
    for number in range(4):
        target.fill(topic, number, 200)
    options = {"partition_assignment_strategy": "cooperative-sticky", "max_poll_records": 10}
    with target.member(group, **options) as first:
        first.subscribe([topic], listener=told)
        found = until(lambda: have_all([first], topic, 4), first)
        with target.member(group, topic, **options) as second:
            found += until(lambda: have_all([first, second], topic, 4), first, second)
            kept = sorted(tp.partition for tp in first.assignment)
            given = sorted(tp.partition for tp in second.assignment)
            first.commit()
    assert [call for call in told.calls if call[1]] == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", given),
        ("revoked", kept),
    ]
    assert any(record.partition in kept for record in found)


def test_a_listener_may_use_the_consumer(target: Target) -> None:
    topic, group = target.topic(2), new_group()
    written = target.fill(topic, 0, 10)
    target.fill(topic, 1, 10)

    class Seeks(RebalanceListener):
        thread: threading.Thread | None = None

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            Seeks.thread = threading.current_thread()
            for tp in partitions:
                consumer.seek(tp, 5)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.commit(dict.fromkeys(partitions, 9))

    with target.member(group) as consumer:
        consumer.subscribe([topic], listener=Seeks())
        records = read(consumer, 10)
        assert [record.value for record in records if record.partition == 0] == written[5:]
        assert Seeks.thread is threading.current_thread()
    with target.consumer(group_id=group) as watcher:
        both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert {each.offset for each in watcher.committed(both).values() if each} == {9}


def test_an_error_of_a_listener_is_raised_by_poll(target: Target) -> None:
    class Fails(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise LookupError("mine")

    topic = target.topic()
    with target.member(new_group()) as consumer:
        consumer.subscribe([topic], listener=Fails())
        with pytest.raises(LookupError, match="mine"):
            consumer.poll(10_000)


def test_a_static_member_that_comes_back_gets_what_it_had_without_a_rebalance(target: Target) -> None:
    topic, group = target.topic(4), new_group()
    with target.member(group, topic, group_instance_id="one") as first:
        second = target.member(group, topic, group_instance_id="two")
        until(lambda: have_all([first, second], topic, 4), first, second)
        had, generation = second.assignment, first.group_metadata().generation_id
        second.close()
        with target.member(group, topic, group_instance_id="two") as again:
            until(lambda: again.assignment, again, first)
            assert again.assignment == had
            first.poll(500)
            assert first.group_metadata().generation_id == generation


def test_a_static_member_is_fenced_by_its_successor(target: Target) -> None:
    topic, group = target.topic(), new_group()
    with target.member(group, topic, group_instance_id="one") as first:
        until(lambda: first.assignment, first)
        with target.member(group, topic, group_instance_id="one") as second:
            until(lambda: second.assignment, second)
            with pytest.raises(ConsumerFencedError, match="'one'"):
                until(lambda: False, first, timeout_s=10)


def test_a_consumer_that_does_not_poll_loses_its_partitions(target: Target) -> None:
    topic, group, told = target.topic(2), new_group(), Told()
    target.fill(topic, 0, 10)
    with target.member(group, max_poll_interval_ms=1000, session_timeout_ms=6000) as slow:
        slow.subscribe([topic], listener=told)
        assert len(read(slow, 10)) == 10
        with target.member(group, topic, max_poll_interval_ms=1000, session_timeout_ms=6000) as other:
            until(lambda: have_all([other], topic, 2), other)
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
                slow.commit({TopicPartition(topic, 0): 10})
            until(lambda: have_all([slow, other], topic, 2), slow, other)
    assert told.calls[:2] == [("assigned", [0, 1]), ("lost", [0, 1])]


def test_a_pattern_finds_topics_that_are_made_later(target: Target) -> None:
    prefix, group = f"p{new_group()}", new_group()
    first = target.topic(2, name=f"{prefix}-a")
    target.topic(1, name=f"other-{prefix}")
    with target.member(group, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"{prefix}-.*")
        until(lambda: have_all([consumer], first, 2), consumer)
        target.topic(1, name=f"{prefix}-b")
        until(lambda: len(consumer.assignment) == 3, consumer)
        assert consumer.subscription == {first, f"{prefix}-b"}


def test_partitions_that_are_added_are_read(target: Target) -> None:
    topic, group = target.topic(1), new_group()
    with target.member(group, topic, metadata_max_age_ms=200) as consumer:
        until(lambda: have_all([consumer], topic, 1), consumer)
        target.grow(topic, 3)
        until(lambda: have_all([consumer], topic, 3), consumer)


def test_another_subscription_takes_the_place_of_the_first(target: Target) -> None:
    one, other, group = target.topic(1), target.topic(1), new_group()
    with target.member(group, one) as consumer:
        until(lambda: have_all([consumer], one, 1), consumer)
        consumer.subscribe([other])
        until(lambda: have_all([consumer], other, 1), consumer)
        consumer.unsubscribe()
        assert consumer.assignment == []
        consumer.subscribe([one, other])
        until(lambda: len(consumer.assignment) == 2, consumer)


def test_members_with_different_topics_get_only_what_they_want(target: Target) -> None:
    one, other, group = target.topic(3), target.topic(3), new_group()
    for strategy in (*EAGER, *COOPERATIVE):
        options = {"partition_assignment_strategy": strategy}
        with target.member(group, one, **options) as first, target.member(group, one, other, **options) as second:
            until(lambda: first.assignment and len(first.assignment) + len(second.assignment) == 6, first, second)
            assert {tp.topic for tp in first.assignment} == {one}
            assert {(other, number) for number in range(3)} <= set(second.assignment)


def test_a_group_moves_from_eager_to_cooperative_member_by_member(target: Target) -> None:
    topic, group = target.topic(4), new_group()
    both = ("range", "cooperative-sticky")
    first = target.member(group, topic, partition_assignment_strategy="range")
    second = target.member(group, topic, partition_assignment_strategy="range")
    members = [first, second]
    until(lambda: have_all(members, topic, 4), *members)
    for strategy in (both, ("cooperative-sticky",)):
        for at in range(2):
            members[at].close()
            members[at] = target.member(group, topic, partition_assignment_strategy=strategy)
            until(lambda: have_all(members, topic, 4), *members)
    for member in members:
        member.close()


def test_nothing_is_read_twice_or_left_out_while_members_come_and_go(target: Target) -> None:
    topic, group = target.topic(4), new_group()
    for number in range(4):
        target.fill(topic, number, 300)
    options = {
        "enable_auto_commit": True,
        "max_poll_records": 20,
        "partition_assignment_strategy": "cooperative-sticky",
    }
    seen: list[tuple[int, int]] = []
    members: list[Consumer] = []
    deadline = time.monotonic() + 60
    step = 0
    while len(seen) < 1200 and time.monotonic() < deadline:
        if step < 100 and step % 15 == 0 and len(members) < 3:
            members.append(target.member(group, topic, **options))
        elif step < 100 and step % 40 == 39:
            members.pop(0).close()
        step += 1
        for member in members:
            seen += [(record.partition, record.offset) for record in member.poll(20)]
    for member in members:
        member.close()
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(300)]


def test_a_member_that_vanishes_is_replaced_after_its_session(target: Target) -> None:
    topic, group = target.topic(2), new_group()
    gone = target.member(group, topic, session_timeout_ms=6000)
    until(lambda: have_all([gone], topic, 2), gone)
    # Its connections end and it says nothing, as a machine does that loses power.
    gone._run(gone._core._cluster.close())
    gone._is_closed = True
    with target.member(group, topic, session_timeout_ms=6000) as heir:
        until(lambda: have_all([heir], topic, 2), heir)


def test_a_member_that_goes_while_it_joins_keeps_nobody_waiting(target: Target) -> None:
    topic, group = target.topic(2), new_group()
    with target.member(group, topic) as first:
        until(lambda: have_all([first], topic, 2), first)
        second = target.member(group, topic)
        # It waits for the first one, which does not poll now.
        assert second.poll(1000) == []
        began = time.monotonic()
        second.close()
        assert time.monotonic() - began < 4
        until(lambda: have_all([first], topic, 2), first, timeout_s=5)


def test_errors_of_the_group_name_it(target: Target) -> None:
    topic, group = target.topic(), new_group()
    with target.member(group, topic, partition_assignment_strategy="range") as first:
        until(lambda: first.assignment, first)
        with (
            target.member(group, topic, partition_assignment_strategy="cooperative-sticky") as second,
            pytest.raises(KafkaError, match=group),
        ):
            second.poll(10_000)
