"""Brokers come, go silent, shut down and come back: who leads then, and in which epoch."""

from mainstem.core.controller.controller import Controller
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from mainstem.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from mainstem.protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from mainstem.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tests.compat.controller_requests import create, topic
from tests.unit.core.controller.harness import SESSION_MS, Cluster, directory


def test_a_new_broker_is_fenced_until_it_has_replayed_its_registration() -> None:
    cluster = Cluster()
    assert cluster.register(2) == ErrorCode.NONE
    behind = BrokerHeartbeatRequest(
        broker_id=2,
        broker_epoch=cluster.epochs[2],
        current_metadata_offset=cluster.epochs[2] - 1,
        want_fence=False,
        want_shut_down=False,
    )
    answer = cluster.decide(behind).response
    assert "is_caught_up=True" not in repr(answer)
    assert cluster.image.brokers[2].fenced
    assert cluster.heartbeat(2, fence=True).is_fenced
    assert not cluster.heartbeat(2).is_fenced
    assert not cluster.image.brokers[2].fenced


def test_the_same_incarnation_keeps_its_epoch() -> None:
    cluster = Cluster(2)
    epoch = cluster.epochs[2]
    assert cluster.register(2) == ErrorCode.NONE
    assert cluster.epochs[2] == epoch
    assert not cluster.image.brokers[2].fenced


def test_an_incarnation_does_not_displace_one_that_may_be_alive() -> None:
    cluster = Cluster(2)
    assert cluster.register(2, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += SESSION_MS
    assert cluster.register(2, incarnation=2) == ErrorCode.NONE


def test_a_controller_does_not_wait_for_its_own_node_to_time_out() -> None:
    cluster = Cluster(1)
    cluster.create("t", {0: [1]})
    replayed = ClusterImage()
    replayed.replay_all(cluster.log)
    restarted = Cluster()
    restarted.controller.context.image = replayed
    restarted.log = list(cluster.log)
    assert restarted.register(1, incarnation=2) == ErrorCode.NONE
    assert restarted.partition("t").leader == -1
    assert not restarted.heartbeat(1).is_fenced
    assert restarted.partition("t").leader == 1
    assert restarted.partition("t").leader_epoch == 2


def test_a_clean_restart_keeps_everything_eligible() -> None:
    cluster = Cluster(1)
    cluster.create("t", {0: [1]})
    assert not cluster.heartbeat(1, shut_down=True).should_shut_down
    assert cluster.partition("t").elr == (1,)
    assert cluster.heartbeat(1, shut_down=True).should_shut_down
    assert cluster.image.brokers[1].fenced
    cluster.start(1, incarnation=2, previous_epoch=cluster.epochs[1])
    state = cluster.partition("t")
    assert (state.leader, state.leader_epoch, state.isr, state.elr, state.recovery_state) == (1, 2, (1,), (), 0)


def test_an_unclean_restart_is_a_recovery_by_the_last_known_leader() -> None:
    cluster = Cluster(1)
    cluster.create("t", {0: [1]})
    cluster.now_ms += SESSION_MS
    cluster.start(1, incarnation=2)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.elr, state.last_known_elr, state.recovery_state) == (1, (1,), (), (), 1)


def test_a_replica_that_lost_unsynced_data_does_not_lead_before_one_that_did_not() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]}, min_insync_replicas="2")
    for _ in range(4):
        cluster.now_ms += SESSION_MS // 3
        cluster.heartbeat(2)
        cluster.write(cluster.controller.tick(cluster.now_ms))
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.elr) == (2, (2,), (1,))
    # 1 comes back without its epoch: it is not eligible any more, and gets no leadership.
    cluster.start(1, incarnation=2)
    assert (state.leader, state.isr, state.elr) == (2, (2,), ())


def test_silent_brokers_are_fenced_and_their_leaders_move() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", {0: [1, 2, 3]})
    for _ in range(4):
        cluster.now_ms += SESSION_MS // 3
        cluster.heartbeat(2)
        cluster.heartbeat(3)
        cluster.write(cluster.controller.tick(cluster.now_ms))
    assert cluster.image.brokers[1].fenced
    state = cluster.partition("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))


def test_a_controller_that_was_stopped_judges_nobody() -> None:
    cluster = Cluster(1, 2)
    cluster.controller.tick(cluster.now_ms)
    cluster.now_ms += 100 * SESSION_MS
    assert cluster.controller.tick(cluster.now_ms) == []
    assert not cluster.image.brokers[2].fenced


def test_a_controlled_shutdown_waits_until_others_know() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]})
    assert not cluster.heartbeat(1, shut_down=True).should_shut_down
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert cluster.partition("t").leader == 2
    cluster.controller.context.sessions[2].metadata_offset = 0
    assert not cluster.heartbeat(1, shut_down=True).should_shut_down
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, shut_down=True).should_shut_down
    assert cluster.image.brokers[1].fenced


def test_heartbeats_of_an_old_epoch_are_refused() -> None:
    cluster = Cluster(2)
    cluster.epochs[2] -= 1
    assert cluster.heartbeat(2).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_failed_directory_takes_its_partitions_out() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [1, 2]})
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=[directory(1)],
    )
    cluster.decide(request)
    assert cluster.partition("t").leader == 2
    assert cluster.partition("t").isr == (2,)


def test_producer_ids_are_given_once() -> None:
    cluster = Cluster(1, 2)
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=cluster.epochs[broker_id])
        answer = cluster.decide(request).response
        assert isinstance(answer, AllocateProducerIdsResponse)
        starts.append((answer.producer_id_start, answer.producer_id_len))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    replayed = ClusterImage()
    replayed.replay_all(cluster.log)
    assert replayed.next_producer_id == 3000


def test_an_unregistered_broker_leads_nothing() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", {0: [2, 1]})
    cluster.decide(UnregisterBrokerRequest(broker_id=2))
    assert list(cluster.image.brokers) == [1]
    assert cluster.partition("t").leader == 1


def test_a_start_writes_one_change_a_partition() -> None:
    cluster = Cluster(1, default_partitions=500)
    cluster.decide(create(topic("big", -1, 1)))
    cluster.heartbeat(1, shut_down=True)
    cluster.heartbeat(1, shut_down=True)
    before = len(cluster.log)
    cluster.start(1, incarnation=2, previous_epoch=cluster.epochs[1])
    written = cluster.log[before:]
    assert [type(record) for record in written[:2]] == [RegisterBrokerRecord, BrokerRegistrationChangeRecord]
    assert sum(isinstance(record, PartitionChangeRecord) for record in written) == 500


def test_a_transaction_that_a_controller_left_open_is_aborted() -> None:
    cluster = Cluster(1)
    cluster.write([BeginTransactionRecord(name="half")])
    cluster.write(cluster.controller.activate([]))
    assert not cluster.image.in_transaction


def test_a_beginning_that_was_left_half_written_is_made_anew() -> None:
    cluster = Cluster()
    half = [record for record in cluster.log if not isinstance(record, EndTransactionRecord)]
    image = ClusterImage()
    image.replay_all(half)
    assert image.in_transaction
    controller = Controller(image, cluster.controller.context.settings, lambda: bytes(16))
    bootstrap = [record for record in half if isinstance(record, FeatureLevelRecord)]
    assert controller.needs_bootstrap
    image.replay_all(controller.activate(bootstrap))
    assert not image.in_transaction
    assert image.features == cluster.image.features
    assert controller.activate([]) == []
