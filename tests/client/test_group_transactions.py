"""Read, change, write, and commit both in one transaction: each record has its effect once, whatever is aborted."""

from mainstem import Producer
from mainstem.client.types import OffsetAndMetadata, TopicPartition
from tests.client.consumer_support import Target, new_group, read, target, values

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
