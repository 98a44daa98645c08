"""Administration: answers and error codes as Kafka 4.3.1 gives them to the same requests."""

import asyncio
from typing import Any

import pytest

from mainstem.broker.apis import (
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k43_elect_leaders,
    k45_alter_partition_reassignments,
    k55_describe_quorum,
    k60_describe_cluster,
    k61_describe_producers,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from mainstem.broker.purgatory import Waiter
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages import k19_create_topics as m19
from mainstem.protocol.messages import k20_delete_topics as m20
from mainstem.protocol.messages import k21_delete_records as m21
from mainstem.protocol.messages import k22_init_producer_id as m22
from mainstem.protocol.messages import k29_describe_acls as m29
from mainstem.protocol.messages import k30_create_acls as m30
from mainstem.protocol.messages import k31_delete_acls as m31
from mainstem.protocol.messages import k34_alter_replica_log_dirs as m34
from mainstem.protocol.messages import k35_describe_log_dirs as m35
from mainstem.protocol.messages import k37_create_partitions as m37
from mainstem.protocol.messages import k43_elect_leaders as m43
from mainstem.protocol.messages import k45_alter_partition_reassignments as m45
from mainstem.protocol.messages import k55_describe_quorum as m55
from mainstem.protocol.messages import k60_describe_cluster as m60
from mainstem.protocol.messages import k61_describe_producers as m61
from mainstem.protocol.messages import k74_list_config_resources as m74
from mainstem.protocol.messages import k75_describe_topic_partitions as m75
from mainstem.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from mainstem.protocol.messages.metadata_records import ConfigRecord
from mainstem.protocol.schema import Message
from tests.support.logs import batch
from tests.unit.broker.fake_broker import FakeBroker, context, run

MIN_INT = -(1 << 31)

# Forwarding


def test_what_the_controller_answers_is_passed_on() -> None:
    async def story(broker: FakeBroker) -> None:
        request = m19.CreateTopicsRequest(topics=[], timeout_ms=1000)
        answer = m19.CreateTopicsResponse(topics=[])
        broker.controller.answer = lambda message: answer
        assert await k19_create_topics.handle(broker.as_broker, context(19, 5), request) is answer
        assert broker.controller.sent == [(request, 5)]

    run(story)


def creatable(name: str) -> m19.CreatableTopic:
    return m19.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_that_has_passed_is_one_for_each_thing_and_nothing_is_done(timeout_ms: int) -> None:
    async def story(broker: FakeBroker) -> None:
        create = m19.CreateTopicsRequest(topics=[creatable("a"), creatable("b")], timeout_ms=timeout_ms)
        created = await k19_create_topics.handle(broker.as_broker, context(19, 7), create)
        assert [(one.name, one.error_code, one.error_message) for one in created.topics] == [
            ("a", ErrorCode.REQUEST_TIMED_OUT, None),
            ("b", ErrorCode.REQUEST_TIMED_OUT, None),
        ]
        delete = m20.DeleteTopicsRequest(
            topics=[m20.DeleteTopicState(name="a", topic_id=bytes(16))], timeout_ms=timeout_ms
        )
        deleted = await k20_delete_topics.handle(broker.as_broker, context(20, 6), delete)
        assert [(one.name, one.error_code) for one in deleted.responses] == [("a", ErrorCode.REQUEST_TIMED_OUT)]
        elect = m43.ElectLeadersRequest(
            topic_partitions=[m43.TopicPartitions(topic="a", partitions=[0])], timeout_ms=timeout_ms
        )
        elected = await k43_elect_leaders.handle(broker.as_broker, context(43, 2), elect)
        assert elected.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (await k43_elect_leaders.handle(broker.as_broker, context(43, 0), elect)).error_code == 0
        reassign = m45.AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[m45.ReassignableTopic(name="a", partitions=[m45.ReassignablePartition(partition_index=0)])],
        )
        moved = await k45_alter_partition_reassignments.handle(broker.as_broker, context(45, 1), reassign)
        assert moved.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert moved.responses[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert broker.controller.sent == []

    run(story)


def test_a_change_that_takes_longer_than_the_request_may_is_timed_out_and_goes_on() -> None:
    async def story(broker: FakeBroker) -> None:
        release = asyncio.get_running_loop().create_future()
        finished: list[str] = []

        class SlowController:
            async def send(self, message: Message, version: int) -> Message:
                await release
                finished.append(type(message).__name__)
                return m37.CreatePartitionsResponse(results=[])

        broker.controller = SlowController()  # type: ignore[assignment]
        create = m19.CreateTopicsRequest(topics=[creatable("a")], timeout_ms=20)
        created = await k19_create_topics.handle(broker.as_broker, context(19, 7), create)
        assert [(one.name, one.error_code) for one in created.topics] == [("a", ErrorCode.REQUEST_TIMED_OUT)]
        delete = m20.DeleteTopicsRequest(topic_names=["a"], timeout_ms=20)
        deleted = await k20_delete_topics.handle(broker.as_broker, context(20, 5), delete)
        assert [one.error_code for one in deleted.responses] == [ErrorCode.REQUEST_TIMED_OUT]
        more = m37.CreatePartitionsRequest(
            topics=[m37.CreatePartitionsTopic(name="a", count=2, assignments=None)], timeout_ms=20, validate_only=False
        )
        grown = await k37_create_partitions.handle(broker.as_broker, context(37, 3), more)
        assert [one.error_code for one in grown.results] == [ErrorCode.REQUEST_TIMED_OUT]
        assert finished == []
        release.set_result(None)
        # In time it gets its answer.
        assert (await k37_create_partitions.handle(broker.as_broker, context(37, 3), more)).results == []
        assert sorted(finished) == [
            "CreatePartitionsRequest", "CreatePartitionsRequest", "CreateTopicsRequest", "DeleteTopicsRequest"
        ]  # fmt: skip

    run(story)


def test_a_controller_out_of_reach_is_an_error_for_each_topic() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda message: RemoteError(ErrorCode.NOT_CONTROLLER, "elsewhere")
        request = m20.DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=10)
        answer = await k20_delete_topics.handle(broker.as_broker, context(20, 5), request)
        assert [(one.name, one.error_code, one.error_message) for one in answer.responses] == [
            ("a", ErrorCode.NOT_CONTROLLER, "elsewhere"),
            ("b", ErrorCode.NOT_CONTROLLER, "elsewhere"),
        ]

    run(story)


def quorum_answer() -> m55.DescribeQuorumResponse:
    replica = m55.ReplicaState(replica_id=1, replica_directory_id=b"d" * 16, log_end_offset=5)
    partition = m55.ResponsePartitionData(
        partition_index=0,
        error_code=0,
        leader_id=1,
        leader_epoch=1,
        high_watermark=5,
        current_voters=[replica],
        observers=[],
    )
    return m55.DescribeQuorumResponse(
        error_code=0,
        topics=[m55.ResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])],
        nodes=[m55.Node(node_id=1, listeners=[])],
    )


def test_the_quorum_is_told_in_every_version_and_nothing_else_has_one() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda message: quorum_answer()

        async def ask(version: int, *topics: tuple[str, list[int]]) -> m55.DescribeQuorumResponse:
            request = m55.DescribeQuorumRequest(
                topics=[
                    m55.TopicData(topic_name=name, partitions=[m55.PartitionData(partition_index=one) for one in ones])
                    for name, ones in topics
                ]
            )
            answer = await k55_describe_quorum.handle(broker.as_broker, context(55, version), request)
            answer.encode(version)
            return answer

        for version in range(3):
            answer = await ask(version, ("__cluster_metadata", [0]))
            assert len(answer.nodes) == (1 if version == 2 else 0)
        for topics in ([("x", [0])], [("__cluster_metadata", [0, 1])], [("__cluster_metadata", [0]), ("x", [0])]):
            refused = await ask(2, *topics)
            codes = [one.error_code for topic in refused.topics for one in topic.partitions]
            assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert refused.nodes == []
        assert (await ask(2)).topics == []

    run(story)


# Records


def delete_records(broker: FakeBroker, *topics: tuple[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, ...]]]:
    request = m21.DeleteRecordsRequest(
        topics=[
            m21.DeleteRecordsTopic(
                name=name,
                partitions=[m21.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in ones],
            )
            for name, ones in topics
        ],
        timeout_ms=0,
    )
    answer = k21_delete_records.handle(broker.as_broker, context(21, 2), request)
    return {
        topic.name: [(one.partition_index, one.low_watermark, one.error_code) for one in topic.partitions]
        for topic in answer.topics
    }


def test_delete_records_moves_the_log_start_up_to_the_high_watermark() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t", 2)
        await broker.create_topic("c", cleanup_policy="compact")
        await broker.create_topic("both", cleanup_policy="compact,delete")
        await broker.create_topic("__consumer_offsets")
        for index in (0, 1):
            broker.produce("t", index, batch(*[b"v"] * 10))
        assert delete_records(broker, ("t", [(0, 3)])) == {"t": [(0, 3, 0)]}
        assert delete_records(broker, ("t", [(0, 1)])) == {"t": [(0, 3, 0)]}
        assert delete_records(broker, ("t", [(0, 11)])) == {"t": [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]}
        assert delete_records(broker, ("t", [(0, -2)])) == {"t": [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]}
        assert delete_records(broker, ("t", [(1, -1)])) == {"t": [(1, 10, 0)]}
        assert delete_records(broker, ("t", [(0, 4), (0, 5)]), ("t", [(1, 0)])) == {"t": [(0, 5, 0), (1, 10, 0)]}
        assert delete_records(broker, ("t", [])) == {}
        assert delete_records(broker, ("c", [(0, 0)])) == {"c": [(0, -1, ErrorCode.POLICY_VIOLATION)]}
        assert delete_records(broker, ("both", [(0, 0)])) == {"both": [(0, 0, 0)]}
        assert delete_records(broker, ("nope", [(0, 0)]), ("t", [(9, 0)])) == {
            "nope": [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
            "t": [(9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        }
        assert delete_records(broker, ("__consumer_offsets", [(0, 0)])) == {
            "__consumer_offsets": [(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
        }

    run(story)


def test_delete_records_wakes_those_who_wait_for_records_that_are_gone() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"v"))
        woken: list[int] = []

        Waiter(broker.loop, 10, [partition.watchers], lambda: True, lambda: woken.append(partition.log.log_start))
        delete_records(broker, ("t", [(0, 0)]))
        assert woken == []
        delete_records(broker, ("t", [(0, 1)]))
        assert woken == [1]

    run(story)


def test_producers_of_a_partition_are_told() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t", 2)
        broker.produce("t", 1, batch(b"a", b"b", b"c", producer_id=777, epoch=3, sequence=0))
        request = m61.DescribeProducersRequest(
            topics=[
                m61.TopicRequest(name="t", partition_indexes=[0, 1, 9]),
                m61.TopicRequest(name="nope", partition_indexes=[0]),
                m61.TopicRequest(name="a b", partition_indexes=[0]),
            ]
        )
        topics = k61_describe_producers.handle(broker.as_broker, context(61, 0), request).topics
        assert [[one.error_code for one in topic.partitions] for topic in topics] == [[0, 0, 3], [3], [17]]
        assert topics[0].partitions[2].error_message is None
        assert topics[1].partitions[0].error_message is not None
        [producer] = topics[0].partitions[1].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (777, 3, 2)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)

    run(story)


# Producer ids


def block(start: int, length: int = 10) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=0, producer_id_start=start, producer_id_len=length)


async def init(broker: FakeBroker, transactional_id: str | None = None, **fields: Any) -> tuple[int, int, int]:
    fields.setdefault("transaction_timeout_ms", 1000)
    request = m22.InitProducerIdRequest(transactional_id=transactional_id, **fields)
    answer = await k22_init_producer_id.handle(broker.as_broker, context(22, 5), request)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def test_producer_ids_are_given_once_and_the_next_block_is_fetched_ahead() -> None:
    async def story(broker: FakeBroker) -> None:
        starts = iter([0, 500, 1000])
        broker.controller.answer = lambda message: block(next(starts))
        first = await asyncio.gather(*(init(broker) for _ in range(8)))
        assert [given[1] for given in first] == list(range(8))
        assert len(broker.controller.sent) == 1
        assert await init(broker) == (0, 8, 0)
        await asyncio.sleep(0)
        assert len(broker.controller.sent) == 2
        assert [(await init(broker))[1] for _ in range(3)] == [9, 500, 501]

    run(story)


def test_a_controller_that_gives_no_ids_is_tried_again_by_the_next_producer() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda message: RemoteError(ErrorCode.NOT_CONTROLLER, "")
        assert await init(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        broker.controller.answer = lambda message: AllocateProducerIdsResponse(
            error_code=ErrorCode.STALE_BROKER_EPOCH, producer_id_start=0, producer_id_len=0
        )
        assert await init(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        broker.controller.answer = lambda message: block(3)
        assert await init(broker) == (0, 3, 0)

    run(story)


def test_what_a_producer_may_ask_for() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda message: block(0)
        assert await init(broker, producer_id=5, producer_epoch=3) == (0, 0, 0)
        assert await init(broker, producer_id=-5, producer_epoch=-5) == (0, 1, 0)
        assert await init(broker, transaction_timeout_ms=-1) == (0, 2, 0)
        refused = (ErrorCode.INVALID_REQUEST, -1, -1)
        assert await init(broker, producer_id=5, producer_epoch=-1) == refused
        assert await init(broker, producer_id=-1, producer_epoch=3) == refused

    run(story)


# Access control


def test_without_an_authorizer_access_control_is_disabled() -> None:
    async def story(broker: FakeBroker) -> None:
        every: dict[str, Any] = {"resource_type_filter": 2, "operation": 1, "permission_type": 1}
        every |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        described = k29_describe_acls.handle(broker.as_broker, context(29, 3), m29.DescribeAclsRequest(**every))
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        entry: dict[str, Any] = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
        entry |= {"operation": 3, "permission_type": 3}
        created = k30_create_acls.handle(
            broker.as_broker, context(30, 3), m30.CreateAclsRequest(creations=[m30.AclCreation(**entry)] * 2)
        )
        assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        deleted = k31_delete_acls.handle(
            broker.as_broker, context(31, 3), m31.DeleteAclsRequest(filters=[m31.DeleteAclsFilter(**every)])
        )
        assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
        unknown = m30.CreateAclsRequest(creations=[m30.AclCreation(**{**entry, "resource_type": 0})])
        with pytest.raises(RemoteError):
            k30_create_acls.handle(broker.as_broker, context(30, 3), unknown)

    run(story)


# Cluster and topics


def describe_cluster(broker: FakeBroker, **fields: Any) -> m60.DescribeClusterResponse:
    fields.setdefault("include_cluster_authorized_operations", False)
    return k60_describe_cluster.handle(broker.as_broker, context(60, 2), m60.DescribeClusterRequest(**fields))


def test_the_cluster_is_described_to_those_who_ask_for_brokers() -> None:
    async def story(broker: FakeBroker) -> None:
        found = describe_cluster(broker)
        assert (found.cluster_id, found.controller_id, found.cluster_authorized_operations) == ("a-cluster", 1, MIN_INT)
        assert [(one.broker_id, one.host, one.port, one.rack) for one in found.brokers] == [
            (1, "127.0.0.1", 19092, "r1")
        ]
        assert (
            describe_cluster(broker, include_cluster_authorized_operations=True).cluster_authorized_operations == 8096
        )
        for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            refused = describe_cluster(broker, endpoint_type=kind)
            assert (refused.error_code, refused.cluster_id, refused.controller_id) == (code, "", -1)

    run(story)


def test_config_resources_are_listed_by_type() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t")
        await broker.replay(
            ConfigRecord(resource_type=32, resource_name="g", name="share.isolation.level", value="read_committed"),
            ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="60000"),
        )

        def listed(version: int, *types: int) -> list[tuple[str, int]] | int:
            request = m74.ListConfigResourcesRequest(resource_types=list(types))
            answer = k74_list_config_resources.handle(broker.as_broker, context(74, version), request)
            return answer.error_code or [(one.resource_name, one.resource_type) for one in answer.config_resources]

        assert listed(0) == [("m", 16)]
        assert listed(1) == [("g", 32), ("m", 16), ("1", 8), ("1", 4), ("t", 2)]
        assert listed(1, 2, 2) == [("t", 2)]
        assert listed(1, 2, 0) == ErrorCode.UNSUPPORTED_VERSION

    run(story)


Page = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


def page(broker: FakeBroker, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Page:
    request = m75.DescribeTopicPartitionsRequest(
        topics=[m75.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else m75.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = k75_describe_topic_partitions.handle(broker.as_broker, context(75, 0), request)
    topics = [
        (one.name or "", one.error_code, [each.partition_index for each in one.partitions]) for one in answer.topics
    ]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


def test_topics_come_page_by_page() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("z5", 5)
        await broker.create_topic("m3", 3)
        all_m3, all_z5 = ("m3", 0, [0, 1, 2]), ("z5", 0, [0, 1, 2, 3, 4])
        assert page(broker, []) == ([all_m3, all_z5], None)
        assert page(broker, ["z5", "m3", "nope", "a b"]) == ([("a b", 17, []), all_m3, ("nope", 3, []), all_z5], None)
        assert page(broker, ["z5", "m3"], 3) == ([all_m3], ("z5", 0))
        assert page(broker, ["z5", "m3"], 4) == ([all_m3, ("z5", 0, [0])], ("z5", 1))
        assert page(broker, ["z5"], -1) == ([("z5", 0, [0])], ("z5", 1))
        assert page(broker, ["z5", "m3"], 3, ("z5", 1)) == ([("z5", 0, [1, 2, 3])], ("z5", 4))
        assert page(broker, ["z5", "m3"], 3, ("z5", 9)) == ([("z5", 0, [])], None)
        assert page(broker, [], 3, ("m3", 1)) == ([("m3", 0, [1, 2]), ("z5", 0, [0])], ("z5", 1))
        assert page(broker, ["m3", "m3"]) == ([all_m3], None)
        assert page(broker, ["m3", "nope"], 3) == ([all_m3], ("nope", 0))
        assert page(broker, ["nope", "m3"], 2, ("nope", 0)) == ([("nope", 3, [])], None)
        invalid = ErrorCode.INVALID_REQUEST
        assert page(broker, ["z5", "m3"], 8, ("n", 0)) == ([("z5", invalid, []), ("m3", invalid, [])], None)
        assert page(broker, ["z5"], 8, ("z5", -1)) == ([("z5", invalid, [])], None)
        assert page(broker, [], 8, ("z5", -1)) == ([], None)
        assert page(broker, ["z5", ""]) == ([("z5", -1, []), ("", -1, [])], None)

    run(story)


def test_a_broker_bounds_the_size_of_a_page() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t", 5)
        assert page(broker, ["t"], 1000) == ([("t", 0, [0, 1])], ("t", 2))

    run(story, max_request_partition_size_limit="2")


# Log directories


def directories(broker: FakeBroker, topics: list[tuple[str, list[int]]] | None = None) -> dict[str, list[Any]]:
    asked = (
        None if topics is None else [m35.DescribableLogDirTopic(topic=name, partitions=ones) for name, ones in topics]
    )
    answer = k35_describe_log_dirs.handle(broker.as_broker, context(35, 5), m35.DescribeLogDirsRequest(topics=asked))
    return {
        one.log_dir: [
            (topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
            for topic in one.topics
            for each in topic.partitions
        ]
        if one.error_code == 0
        else [one.error_code]
        for one in answer.results
    }


def test_log_directories_are_told_with_sizes() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t", 2)
        data = batch(b"v" * 100)
        broker.produce("t", 0, data)
        homes = {index: broker.partitions.dirs.directory_of("t", index) for index in (0, 1)}
        assert {home.path for home in homes.values() if home is not None} == {"/d1", "/d2"}
        found = directories(broker)
        assert sorted(each for ones in found.values() for each in ones) == [
            ("t", 0, len(data), 0, False),
            ("t", 1, 0, 0, False),
        ]
        assert directories(broker, []) == {"/d1": [], "/d2": []}
        assert sum(len(ones) for ones in directories(broker, [("t", [1, 9]), ("nope", [0])]).values()) == 1
        broker.partitions.directory_failed(broker.partitions.dirs.directories[0], OSError("gone"))
        assert directories(broker)["/d1"] == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(story)


def test_cordoned_directories_are_told() -> None:
    async def story(broker: FakeBroker) -> None:
        for value, cordoned in (("/d2", [False, True]), ("*", [True, True]), ("", [False, False])):
            await broker.replay(ConfigRecord(resource_type=4, resource_name="1", name="cordoned.log.dirs", value=value))
            answer = k35_describe_log_dirs.handle(
                broker.as_broker, context(35, 5), m35.DescribeLogDirsRequest(topics=None)
            )
            assert [one.is_cordoned for one in answer.results] == cordoned
            assert all(one.total_bytes > 0 and one.usable_bytes > 0 for one in answer.results)

    run(story)


async def alter(broker: FakeBroker, path: str, *topics: tuple[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
    request = m34.AlterReplicaLogDirsRequest(
        dirs=[
            m34.AlterReplicaLogDir(
                path=path, topics=[m34.AlterReplicaLogDirTopic(name=name, partitions=ones) for name, ones in topics]
            )
        ]
    )
    answer = await k34_alter_replica_log_dirs.handle(broker.as_broker, context(34, 2), request)
    return {
        one.topic_name: [(each.partition_index, each.error_code) for each in one.partitions] for one in answer.results
    }


def test_which_moves_are_refused() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t")
        assert await alter(broker, "/nope", ("t", [0]), ("nope", [0])) == {
            "t": [(0, ErrorCode.LOG_DIR_NOT_FOUND)],
            "nope": [(0, ErrorCode.LOG_DIR_NOT_FOUND)],
        }
        assert await alter(broker, "/d1/", ("t", [0])) == {"t": [(0, ErrorCode.LOG_DIR_NOT_FOUND)]}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(broker, "/d1", ("t", [9]), ("nope", [0])) == {"t": [(9, unknown)], "nope": [(0, unknown)]}
        assert await alter(broker, "/d1", ("t", [])) == {}
        assert await alter(broker, "/d1", ("x" * 230, [0])) == {"x" * 230: [(0, ErrorCode.INVALID_TOPIC_EXCEPTION)]}
        await broker.replay(ConfigRecord(resource_type=4, resource_name="1", name="cordoned.log.dirs", value="*"))
        assert await alter(broker, "/d1", ("t", [0])) == {"t": [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]}

    run(story)


def test_a_partition_moves_while_it_is_served() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t")
        partition = broker.produce("t", 0, batch(b"x" * 5000, producer_id=7, epoch=0, sequence=0))
        home = broker.partitions.dirs.directory_of("t", 0)
        assert home is not None
        target = "/d2" if home.path == "/d1" else "/d1"
        assert await alter(broker, home.path, ("t", [0])) == {"t": [(0, 0)]}
        assert not broker.partitions.dirs.moves
        assert await alter(broker, target, ("t", [0])) == {"t": [(0, 0)]}
        assert directories(broker)[target] == [("t", 0, 0, 1, True)]
        for number in range(1, 200):
            broker.produce("t", 0, batch(b"y" * 50, producer_id=7, epoch=0, sequence=number))
            await asyncio.sleep(0)
            if not broker.partitions.dirs.moves:
                break
        while broker.partitions.dirs.moves:
            await asyncio.sleep(0.001)
        broker.produce("t", 0, batch(b"after", producer_id=7, epoch=0, sequence=number + 1))
        assert partition.log.directory == f"{target}/t-0"
        assert partition.log.log_end == partition.high_watermark == number + 2
        assert [len(ones) for ones in (directories(broker)[home.path], directories(broker)[target])] == [0, 1]
        await asyncio.sleep(0.01)
        told = [message.directories[0].id for message, _ in broker.controller.sent]  # type: ignore[attr-defined]
        ids = {one.path: one.directory_id for one in broker.partitions.dirs.directories}
        assert told == [ids[home.path], ids[target]]

    run(story)


def test_a_move_to_a_third_place_takes_over_and_a_deleted_topic_ends_it() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = broker.assign
        await broker.create_topic("t")
        broker.produce("t", 0, batch(b"x"))
        home = broker.partitions.dirs.directory_of("t", 0)
        assert home is not None
        target = "/d2" if home.path == "/d1" else "/d1"
        await alter(broker, target, ("t", [0]))
        assert await alter(broker, home.path, ("t", [0])) == {"t": [(0, 0)]}
        assert not broker.partitions.dirs.moves
        await alter(broker, target, ("t", [0]))
        broker.partitions.dirs.cancel_move("t", 0)
        await asyncio.sleep(0.01)
        assert broker.partitions.dirs.directory_of("t", 0) is home
        await alter(broker, target, ("t", [0]))
        await broker.log_moves.stop()
        assert broker.partitions.dirs.directory_of("t", 0) is home

    run(story)
