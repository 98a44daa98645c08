from random import Random

from mainstem.client.backoff import Backoff
from mainstem.client.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from mainstem.client.metadata import BrokerAddress, LeaderAndEpoch, MetadataCache
from mainstem.client.types import TopicPartition
from mainstem.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST, SECOND = b"\x01" * 16, b"\x02" * 16
TP = TopicPartition("orders", 0)


def answer(leader: int, epoch: int, topic_id: bytes = FIRST, code: int = 0, partitions: int = 1) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=9000 + node) for node in (1, 2)],
        controller_id=1,
        cluster_id="c",
        topics=[
            MetadataResponseTopic(
                error_code=code,
                name="orders",
                topic_id=topic_id,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def test_a_leader_is_known_by_its_epoch_and_a_topic_by_its_id() -> None:
    cache = MetadataCache()
    cache.update(answer(1, 4), ["orders"])
    assert cache.leader(TP) == LeaderAndEpoch(1, 4)
    assert cache.name_of(FIRST) == "orders"
    assert cache.brokers[2] == BrokerAddress(2, "h", 9002)


def test_an_answer_with_an_older_epoch_does_not_bring_an_old_leader_back() -> None:
    cache = MetadataCache()
    cache.update(answer(2, 5), ["orders"])
    cache.update(answer(1, 4), ["orders"])
    assert cache.leader(TP) == LeaderAndEpoch(2, 5)


def test_a_topic_made_anew_starts_again_from_its_first_epoch() -> None:
    cache = MetadataCache()
    cache.update(answer(2, 5), ["orders"])
    cache.update(answer(1, 0, SECOND), ["orders"])
    assert cache.leader(TP) == LeaderAndEpoch(1, 0)
    assert (cache.name_of(FIRST), cache.name_of(SECOND)) == (None, "orders")


def test_a_partition_without_a_leader_has_none() -> None:
    cache = MetadataCache()
    cache.update(answer(-1, 5), ["orders"])
    assert cache.leader(TP) is None
    assert cache.leader(TopicPartition("orders", 7)) is None


def test_a_hint_moves_a_leader_only_forward_and_only_to_a_known_broker() -> None:
    cache = MetadataCache()
    cache.update(answer(1, 4), ["orders"])
    assert not cache.move_leader(TP, 2, 4)
    assert not cache.move_leader(TP, 3, 5)
    assert cache.move_leader(TP, 2, 5)
    assert cache.leader(TP) == LeaderAndEpoch(2, 5)


def test_a_topic_that_is_gone_is_forgotten_with_the_reason() -> None:
    cache = MetadataCache()
    cache.update(answer(1, 4), ["orders"])
    cache.update(answer(1, 4, code=3, partitions=0), ["orders"])
    assert "orders" not in cache.topics
    assert isinstance(cache.errors["orders"], UnknownTopicOrPartitionError)
    assert cache.errors["orders"].topic == "orders"


def test_an_error_that_passes_does_not_make_a_known_topic_unknown() -> None:
    cache = MetadataCache()
    cache.update(answer(1, 4), ["orders"])
    cache.update(answer(1, 4, code=5), ["orders"])
    assert cache.leader(TP) == LeaderAndEpoch(1, 4)
    assert isinstance(cache.errors["orders"], LeaderNotAvailableError)


def test_pauses_double_up_to_a_bound_and_differ_by_a_fifth() -> None:
    pauses = Backoff(100, 1000, Random(1))
    drawn = [pauses.next_s() for _ in range(6)]
    for pause, middle in zip(drawn, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
        assert middle * 0.8 <= pause <= middle * 1.2
    pauses.reset()
    assert pauses.next_s() <= 0.12
