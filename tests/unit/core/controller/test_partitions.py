"""In-sync replicas, elections and reassignments with several brokers, as the metadata records tell them."""

import pytest

from mainstem.core.controller.image import ClusterImage
from mainstem.core.controller.states import LOST_DIRECTORY
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages import k73_assign_replicas_to_dirs as k73
from mainstem.protocol.messages.k43_elect_leaders import ElectLeadersResponse
from mainstem.protocol.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsResponse
from mainstem.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from mainstem.protocol.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.compat.controller_requests import create, elect, reassign, topic
from tests.unit.core.controller.harness import Cluster, directory


def alter(
    cluster: Cluster,
    name: str,
    broker_id: int,
    isr: list[int],
    *,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    epochs: dict[int, int] | None = None,
) -> tuple[int, list[int]]:
    state = cluster.partition(name)
    data = PartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=one, broker_epoch=(epochs or cluster.epochs).get(one, -1)) for one in isr
        ],
        partition_epoch=state.partition_epoch if partition_epoch is None else partition_epoch,
    )
    topics = [TopicData(topic_id=cluster.image.topics[name].topic_id, partitions=[data])]
    request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=cluster.epochs[broker_id], topics=topics)
    answer = cluster.decide(request).response
    assert isinstance(answer, AlterPartitionResponse)
    if answer.error_code:
        return answer.error_code, []
    found = answer.topics[0].partitions[0]
    return found.error_code, found.isr


def test_a_leader_changes_its_in_sync_replicas() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2, 3]})
    assert alter(cluster, "t", 1, [1, 2]) == (ErrorCode.NONE, [1, 2])
    state = cluster.partition("t")
    assert (state.isr, state.partition_epoch, state.leader_epoch) == ((1, 2), 1, 0)
    assert alter(cluster, "t", 1, [1, 2, 3]) == (ErrorCode.NONE, [1, 2, 3])


def test_only_the_leader_in_its_epoch_on_the_newest_state_may_change_them() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2]})
    assert alter(cluster, "t", 2, [1, 2])[0] == ErrorCode.INVALID_REQUEST
    assert alter(cluster, "t", 1, [1, 2], leader_epoch=7)[0] == ErrorCode.NOT_CONTROLLER
    assert alter(cluster, "t", 1, [1, 2], partition_epoch=7)[0] == ErrorCode.NOT_CONTROLLER
    assert alter(cluster, "t", 1, [1])[0] == ErrorCode.NONE
    assert alter(cluster, "t", 1, [1, 2], partition_epoch=0)[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert alter(cluster, "t", 1, [2])[0] == ErrorCode.INVALID_REQUEST
    assert alter(cluster, "t", 1, [1, 3])[0] == ErrorCode.INVALID_REQUEST
    cluster.decide(elect(0, {"t": [0]}))
    cluster.epochs[1] -= 1
    assert alter(cluster, "t", 1, [1])[0] == ErrorCode.STALE_BROKER_EPOCH


def test_an_older_incarnation_may_not_join() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]})
    alter(cluster, "t", 1, [1])
    stale = {1: cluster.epochs[1], 2: cluster.epochs[2] - 1}
    assert alter(cluster, "t", 1, [1, 2], epochs=stale)[0] == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(2, fence=True)
    assert alter(cluster, "t", 1, [1, 2])[0] == ErrorCode.INELIGIBLE_REPLICA


def test_replicas_below_the_minimum_stay_eligible_until_it_is_reached_again() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
    alter(cluster, "t", 1, [1, 2])
    assert cluster.partition("t").elr == ()
    alter(cluster, "t", 1, [1])
    assert cluster.partition("t").elr == (2,)
    alter(cluster, "t", 1, [1, 3])
    assert cluster.partition("t").elr == ()
    alter(cluster, "t", 1, [1])
    assert cluster.partition("t").elr == (3,)
    # The leader goes: the eligible one leads, not the other replica that is alive.
    cluster.heartbeat(1, fence=True)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.elr) == (3, (3,), (1,))


def test_nobody_leads_rather_than_one_that_may_have_lost_records() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]})
    alter(cluster, "t", 1, [1])
    cluster.heartbeat(1, fence=True)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (1,), (1,))
    answer = cluster.decide(elect(1, {"t": [0]})).response
    assert isinstance(answer, ElectLeadersResponse)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
    assert (state.leader, state.isr, state.recovery_state) == (2, (2,), 1)


def test_unclean_election_where_the_topic_wants_it() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]}, unclean_leader_election_enable="true")
    alter(cluster, "t", 1, [1])
    cluster.heartbeat(1, fence=True)
    assert cluster.partition("t").leader == 2
    assert cluster.partition("t").recovery_state == 1


def test_without_eligible_replicas_the_last_in_sync_one_stays() -> None:
    cluster = Cluster(1)
    cluster.image.features.pop("eligible.leader.replicas.version")
    cluster.create("t", {0: [1]})
    cluster.heartbeat(1, fence=True)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.elr) == (-1, (1,), ())
    cluster.heartbeat(1)
    assert (state.leader, state.leader_epoch) == (1, 2)


def test_the_preferred_leader_takes_over_when_asked() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]})
    cluster.heartbeat(1, fence=True)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 2
    answer = cluster.decide(elect(0, {"t": [0]})).response
    assert "error_code=<ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE" in repr(answer)
    alter(cluster, "t", 2, [2, 1])
    cluster.decide(elect(0, {"t": [0]}))
    assert cluster.partition("t").leader == 1


def test_a_reassignment_runs_until_the_new_replicas_are_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2]})
    answer = cluster.decide(reassign("t", 0, [3, 2])).response
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert list(state.directories) == [directory(3), directory(2), directory(1)]
    listed = cluster.decide(ListPartitionReassignmentsRequest()).response
    assert isinstance(listed, ListPartitionReassignmentsResponse)
    assert listed.topics[0].partitions[0].adding_replicas == [3]
    alter(cluster, "t", 1, [1, 2, 3])
    assert (state.replicas, state.isr, state.adding_replicas, state.removing_replicas) == ((3, 2), (2, 3), (), ())
    assert state.leader in (2, 3)
    assert list(state.directories) == [directory(3), directory(2)]


def test_a_reassignment_can_be_cancelled() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2]})
    cluster.decide(reassign("t", 0, [3, 2]))
    cluster.decide(reassign("t", 0, None))
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((2, 1), (), ())


def test_a_broker_says_which_directory_holds_a_replica() -> None:
    cluster = Cluster(1)
    cluster.create("t", {0: [1]})
    other = bytes(15) + b"\x77"
    topic_id = cluster.image.topics["t"].topic_id
    topics = [k73.TopicData(topic_id=topic_id, partitions=[k73.PartitionData(partition_index=0)])]
    request = k73.AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=cluster.epochs[1], directories=[k73.DirectoryData(id=other, topics=topics)]
    )
    cluster.decide(request)
    assert cluster.partition("t").directories == (other,)


@pytest.mark.parametrize("gone", [bytes(15) + b"\x77", LOST_DIRECTORY])
def test_a_replica_in_a_directory_that_is_offline_leads_nothing(gone: bytes) -> None:
    cluster = Cluster(1, 2)
    cluster.create("alone", {0: [1]})
    cluster.create("two", {0: [1, 2]})
    directories = [
        k73.DirectoryData(
            id=gone,
            topics=[
                k73.TopicData(
                    topic_id=cluster.image.topics[name].topic_id, partitions=[k73.PartitionData(partition_index=0)]
                )
                for name in ("alone", "two")
            ],
        )
    ]
    cluster.decide(
        k73.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=cluster.epochs[1], directories=directories)
    )
    alone, two = cluster.partition("alone"), cluster.partition("two")
    assert (alone.directories, alone.leader, alone.isr, alone.elr) == ((gone,), -1, (), (1,))
    assert (two.directory_of(1), two.leader, two.isr) == (gone, 2, (2,))


def test_new_topics_spread_over_the_brokers() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.decide(create(topic("t", 30, 2)))
    leaders = [cluster.partition("t", index).leader for index in range(30)]
    assert {broker_id: leaders.count(broker_id) for broker_id in (1, 2, 3)} == {1: 10, 2: 10, 3: 10}
    for index in range(30):
        assert len(set(cluster.partition("t", index).replicas)) == 2


def test_live_state_is_replayed_state() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
    alter(cluster, "t", 1, [1])
    cluster.heartbeat(1, fence=True)
    cluster.heartbeat(1)
    cluster.decide(reassign("t", 0, [2, 3]))
    replayed = ClusterImage()
    replayed.replay_all(cluster.log)
    assert list(replayed.encoded_records()) == list(cluster.image.encoded_records())
