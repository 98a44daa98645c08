"""Read, change, write, and commit both in one transaction: each record has its effect once, whatever is aborted."""

import pytest

from mainstem import Producer
from mainstem.client.errors import CommitFailedError, KafkaError
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from tests.client.consumer_support import Target, new_group, read, target, until, values

__all__ = ["target"]


class SpoiledError(Exception):
    """Something that goes wrong in the middle of a transaction."""


def test_what_is_aborted_is_read_again_and_what_is_committed_is_not(target: Target) -> None:
    source, sink, group = target.topic(2), target.topic(1), new_group()
    written = [value for number in range(2) for value in target.fill(source, number, 60, batch=20)]
    done = 0
    turn = 0
    with Producer(bootstrap_servers=target.bootstrap, transactional_id=group) as producer:
        while done < len(written):
            turn += 1
            assert turn < 60, "it gets nowhere"
            # Whoever fails starts anew from what its group has committed, as a process does that is started again.
            with target.member(group, source, isolation_level="read_committed", max_poll_records=25) as consumer:
                records = read(consumer, min(25, len(written) - done), timeout_s=20)
                try:
                    with producer.transaction() as transaction:
                        for record in records:
                            producer.send(sink, value=record.value.upper(), partition=0)
                        positions = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in consumer.assignment}
                        transaction.send_offsets(positions, consumer.group_metadata())
                        if turn % 3 == 0:
                            raise SpoiledError
                    done += len(records)
                except SpoiledError:
                    continue
    with target.consumer(sink, isolation_level="read_committed") as consumer:
        assert sorted(values(read(consumer, len(written)))) == sorted(value.upper() for value in written)
        assert consumer.poll(300) == []
        assert consumer.position(TopicPartition(sink, 0)) > len(written)


def test_a_member_that_the_group_went_on_without_commits_nothing_more(target: Target) -> None:
    """Without its old generation it would pass for somebody outside of the group, whom coordinators do not fence."""
    topic, group = target.topic(), new_group()
    tp = TopicPartition(topic, 0)
    target.fill(topic, 0, 2)
    with target.member(group, topic, max_poll_interval_ms=500) as slow:
        assert len(read(slow, 2)) == 2
        with target.member(group, topic) as successor:
            assert len(read(successor, 2)) == 2
            successor.commit()
            with (
                Producer(bootstrap_servers=target.bootstrap, transactional_id=group) as producer,
                pytest.raises(KafkaError, match=group),
                producer.transaction() as transaction,
            ):
                transaction.send_offsets({tp: OffsetAndMetadata(1)}, slow.group_metadata())
        # Nobody is left in the group, and so anybody who is in none may commit for it.
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            slow.commit({tp: 1})
        found = slow.committed([tp])[tp]
        assert found is not None
        assert found.offset == 2
        was = slow.group_metadata()
        until(lambda: slow.assignment and slow.group_metadata() != was, slow)
        slow.commit({tp: 1})
