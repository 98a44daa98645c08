"""The producer against brokers made of functions: leaders that move, answers that do not come, room that runs out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from mainstem.client.errors import (
    BufferExhaustedError,
    ClusterAuthorizationError,
    IllegalStateError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from mainstem.client.producer import AsyncProducer
from mainstem.protocol.batch import BatchView
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.headers import RequestHeader
from mainstem.protocol.messages.k00_produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from mainstem.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from mainstem.protocol.messages.k22_init_producer_id import InitProducerIdResponse
from mainstem.protocol.records import iterate_records
from mainstem.protocol.rpc import decode_request, encode_response
from tests.unit.client.fake_broker import fake_broker, versions

TOPIC_ID = b"\x07" * 16
Verdict = Callable[["Cluster", int, list[bytes | None]], PartitionProduceResponse | None]


@dataclass
class Cluster:
    """Two brokers that know one topic of one partition. `verdict` answers each batch."""

    verdict: Verdict
    leader: int = 1
    epoch: int = 0
    ports: dict[int, int] = field(default_factory=dict)
    log: list[bytes | None] = field(default_factory=list)
    produced: list[tuple[int, list[bytes | None]]] = field(default_factory=list)
    metadata_asked: int = 0
    init_error: int = 0

    def answer(self, node_id: int, header: RequestHeader, frame: bytes) -> bytes | None:
        if header.api_key == 18:
            return versions(header, (0, 3, 12), (3, 0, 12), (18, 0, 4), (22, 0, 4))
        _, request = decode_request(frame)
        if header.api_key == 3:
            self.metadata_asked += 1
            assert isinstance(request, MetadataRequest)
            answer = self._metadata()
            if request.topics is not None and "t" not in [topic.name for topic in request.topics]:
                answer.topics = []
            return encode_response(answer, header.api_version, header.correlation_id)
        if header.api_key == 22:
            identity = InitProducerIdResponse(error_code=self.init_error, producer_id=5, producer_epoch=0)
            return encode_response(identity, header.api_version, header.correlation_id)
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        values = [record.value for record in iterate_records(BatchView(records, 0))]
        self.produced.append((node_id, values))
        verdict = self.verdict(self, node_id, values)
        if verdict is None:
            return None
        produced = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[verdict])])
        if verdict.current_leader.leader_id >= 0:
            leader = verdict.current_leader.leader_id
            produced.node_endpoints = [NodeEndpoint(node_id=leader, host="127.0.0.1", port=self.ports[leader])]
        return encode_response(produced, header.api_version, header.correlation_id)

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=key, host="127.0.0.1", port=port) for key, port in self.ports.items()
            ],
            controller_id=1,
            topics=[MetadataResponseTopic(error_code=0, name="t", topic_id=TOPIC_ID, partitions=[partition])],
        )

    def write(self, values: list[bytes | None]) -> PartitionProduceResponse:
        self.log += values
        return PartitionProduceResponse(index=0, error_code=0, base_offset=len(self.log) - len(values))


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[str]:
    async with (
        fake_broker(lambda header, frame: cluster.answer(1, header, frame)) as first,
        fake_broker(lambda header, frame: cluster.answer(2, header, frame)) as second,
    ):
        cluster.ports = {1: first, 2: second}
        yield f"127.0.0.1:{first}"


def refused(code: ErrorCode, **more: object) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
    for name, value in more.items():
        setattr(answer, name, value)
    return answer


def act(story: Callable[[], object]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))  # type: ignore[arg-type]


def test_an_answer_that_names_the_new_leader_is_followed_at_once() -> None:
    def verdict(cluster: Cluster, node_id: int, values: list[bytes | None]) -> PartitionProduceResponse:
        if node_id == 1:
            moved = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
            return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=moved)
        return cluster.write(values)

    async def story() -> None:
        cluster = Cluster(verdict)
        async with (
            running(cluster) as bootstrap,
            AsyncProducer(
                bootstrap_servers=bootstrap, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000
            ) as producer,
        ):
            # Metadata goes on naming the old leader: only the hint can have led there, and before any pause.
            assert (await producer.send_and_wait("t", b"x")).offset == 0
        assert [node_id for node_id, _ in cluster.produced] == [1, 2]

    act(story)


def test_a_leader_that_moved_without_a_hint_is_found_by_metadata() -> None:
    def verdict(cluster: Cluster, node_id: int, values: list[bytes | None]) -> PartitionProduceResponse:
        if node_id == 1:
            cluster.leader, cluster.epoch = 2, 1
            return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return cluster.write(values)

    async def story() -> None:
        cluster = Cluster(verdict)
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0
        assert cluster.metadata_asked >= 2

    act(story)


def test_a_record_that_nobody_acknowledges_fails_when_its_time_is_up() -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: refused(ErrorCode.NOT_ENOUGH_REPLICAS))
        async with (
            running(cluster) as bootstrap,
            AsyncProducer(bootstrap_servers=bootstrap, request_timeout_ms=200, delivery_timeout_ms=500) as producer,
        ):
            with pytest.raises(
                KafkaTimeoutError, match=r"within delivery_timeout_ms, which is 500.*NOT_ENOUGH_REPLICAS"
            ):
                await producer.send_and_wait("t", b"x")
        assert len(cluster.produced) > 1

    act(story)


def test_a_record_in_flight_fails_when_its_time_is_up_and_what_is_answered_later_changes_nothing() -> None:
    """The second request is under way when the time is up: the record fails then, and not when the request does."""

    async def story() -> None:
        late: list[float] = []
        cluster = Cluster(lambda cluster, node_id, values: None)
        options: dict[str, Any] = {
            "request_timeout_ms": 800,
            "delivery_timeout_ms": 1000,
            "linger_ms": 0,
            "retry_backoff_ms": 10,
        }
        async with running(cluster) as bootstrap:
            producer = AsyncProducer(bootstrap_servers=bootstrap, **options)
            await producer.start()
            await producer.partitions_for("t")
            loop = asyncio.get_running_loop()
            began = loop.time()
            sent = await producer.send("t", b"x")
            with pytest.raises(KafkaTimeoutError, match="within delivery_timeout_ms, which is 1000; the last try: "):
                await sent
            late.append(loop.time() - began)
            assert len(cluster.produced) == 2
            # The broker answers again, and the next record is taken under a new epoch.
            cluster.verdict = lambda cluster, node_id, values: cluster.write(values)
            assert (await producer.send_and_wait("t", b"y")).offset == 0
            await producer.close()
        assert 0.95 <= late[0] < 1.5
        assert cluster.log == [b"y"]

    act(story)


def test_a_callback_that_raises_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: cluster.write(values))
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
            told: list[int] = []

            def fails(_: object) -> None:
                told.append(1)
                raise RuntimeError("a mistake in an application")

            first, second = await producer.send("t", b"x"), await producer.send("t", b"y")
            first.add_done_callback(fails)
            second.add_done_callback(lambda future: told.append(future.result().offset))
            await asyncio.wait_for(producer.flush(), 5)
            assert ((await first).offset, (await second).offset, told) == (0, 1, [1, 1])
            assert (await producer.send_and_wait("t", b"z")).offset == 2
            first.add_done_callback(fails)  # at once, and just as quietly

    act(story)
    assert caplog.text.count("RuntimeError: a mistake in an application") == 2


def test_a_request_without_an_answer_is_sent_again_on_a_new_connection() -> None:
    async def story() -> None:
        def verdict(cluster: Cluster, node_id: int, values: list[bytes | None]) -> PartitionProduceResponse | None:
            return None if len(cluster.produced) == 1 else cluster.write(values)

        cluster = Cluster(verdict)
        async with (
            running(cluster) as bootstrap,
            AsyncProducer(bootstrap_servers=bootstrap, request_timeout_ms=100) as producer,
        ):
            assert (await producer.send_and_wait("t", b"x")).offset == 0
        assert [values for _, values in cluster.produced] == [[b"x"], [b"x"]]

    act(story)


def test_an_error_that_no_retry_can_help_is_told_with_its_place() -> None:
    async def story() -> None:
        cluster = Cluster(
            lambda cluster, node_id, values: refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="not you")
        )
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(TopicAuthorizationError) as caught:
                await producer.send_and_wait("t", b"x")
        error = caught.value
        assert (error.topic, error.partition, error.message) == ("t", 0, "not you")
        assert str(error.broker).startswith("1 at 127.0.0.1:")
        assert len(cluster.produced) == 1

    act(story)


def test_a_full_buffer_that_does_not_empty_is_an_error_after_max_block_ms() -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: None)
        async with running(cluster) as bootstrap:
            producer = AsyncProducer(bootstrap_servers=bootstrap, buffer_memory=1000, max_block_ms=300)
            await producer.start()
            held = await producer.send("t", bytes(800))
            with pytest.raises(BufferExhaustedError, match=r"buffer_memory \(1000 bytes\) within max_block_ms"):
                await producer.send("t", bytes(800))
            assert producer.try_send("t", bytes(800)) is None
            await producer.close(timeout_ms=0)
            with pytest.raises(IllegalStateError, match="closed before the record was acknowledged"):
                held.result()

    act(story)


def test_room_that_was_made_before_anybody_waits_for_it_is_used() -> None:
    """A thread that found the buffer full comes to the loop when everything has been answered: nothing else will be."""

    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: cluster.write(values))
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("t", b"x")
            sent = await asyncio.wait_for(producer.append_waiting("t", 0, None, b"y", -1, None), 5)
            assert (await sent).offset == 1

    act(story)


def test_a_topic_that_something_waits_for_is_not_forgotten_however_long_it_was_idle() -> None:
    """A leader that moves after a long time without an answer is found all the same."""

    async def story() -> None:
        def verdict(cluster: Cluster, node_id: int, values: list[bytes | None]) -> PartitionProduceResponse | None:
            if node_id == 2:
                return cluster.write(values)
            return None if cluster.leader == 1 else refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        cluster = Cluster(verdict)
        async with (
            running(cluster) as bootstrap,
            AsyncProducer(bootstrap_servers=bootstrap, request_timeout_ms=200) as producer,
        ):
            sent = await producer.send("t", b"x")
            while not cluster.produced:
                await asyncio.sleep(0.01)
            client = producer._cluster
            assert client is not None
            for _ in range(2):  # the first time it is seen that there was something to send
                client._wanted["t"] = -1e9
                await client.next_update(5, now=True)
            cluster.leader, cluster.epoch = 2, 1
            async with asyncio.timeout(10):
                assert (await sent).offset == 0

    act(story)


def test_flush_gives_up_after_its_time_and_the_records_stay() -> None:
    async def story() -> None:
        answers = asyncio.Event()

        def verdict(cluster: Cluster, node_id: int, values: list[bytes | None]) -> PartitionProduceResponse | None:
            return cluster.write(values) if answers.is_set() else None

        cluster = Cluster(verdict)
        async with (
            running(cluster) as bootstrap,
            AsyncProducer(bootstrap_servers=bootstrap, request_timeout_ms=400) as producer,
        ):
            sent = await producer.send("t", b"x")
            with pytest.raises(KafkaTimeoutError, match="1 records were not acknowledged within 100 ms"):
                await producer.flush(100)
            answers.set()
            assert (await sent).offset == 0

    act(story)


def test_without_a_producer_id_nothing_is_sent_and_the_reason_is_told() -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: cluster.write(values))
        cluster.init_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(ClusterAuthorizationError):
                await producer.send_and_wait("t", b"x")
            with pytest.raises(ClusterAuthorizationError):
                await producer.send("t", b"y")
        assert cluster.produced == []

    act(story)


def test_records_gather_in_one_batch_while_they_linger_or_wait_for_the_first() -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: cluster.write(values))
        async with running(cluster) as bootstrap, AsyncProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
            sent = [await producer.send("t", b"%d" % at) for at in range(10)]
            await asyncio.gather(*sent)
        assert len(cluster.produced) == 1
        assert cluster.log == [b"%d" % at for at in range(10)]

    act(story)


def test_a_producer_that_is_not_started_or_is_closed_says_so() -> None:
    async def story() -> None:
        cluster = Cluster(lambda cluster, node_id, values: cluster.write(values))
        async with running(cluster) as bootstrap:
            producer = AsyncProducer(bootstrap_servers=bootstrap)
            with pytest.raises(IllegalStateError, match="not started"):
                await producer.send("t", b"x")
            async with producer:
                await producer.send_and_wait("t", b"x")
            with pytest.raises(IllegalStateError, match="closed"):
                await producer.send("t", b"x")
            await producer.close()

    act(story)
