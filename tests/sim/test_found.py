"""What the simulator found in our own code, told as small stories (docs/track-record.md)."""

from random import Random

import pytest

from mainstem.broker.config import BrokerConfig
from mainstem.build_info import build_name
from mainstem.client.producer import AsyncProducer
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mainstem.sim.admin import create_topic
from mainstem.sim.broker_process import BrokerProcess
from mainstem.sim.client import NoAnswer, SimClient
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.sim.loop import Scheduler, make_loop
from mainstem.sim.network import Network
from mainstem.sim.workloads import fetch
from mainstem.storage.errors import StorageError

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")


class Machine:
    """One broker, one client, nothing that goes wrong by itself."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(Random(1))
        self.disk = SimDisk(Random(1))
        network = Network(self.scheduler, Random(1), lambda *event: None, lambda what: None)
        config = BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": "/data",
                "log.cleaner.backoff.ms": "100",
            }
        )
        self.process = BrokerProcess(
            "1", self.scheduler, network, self.disk, config, lambda *event: None, lambda what: None
        )
        self.loop = make_loop(self.scheduler, Random(1), "client", network)
        self.client = SimClient(self.loop, "client", ("broker", 9092))
        self.process.format()
        self.start()

    def start(self) -> None:
        self.process.start()
        self.scheduler.run_until(lambda: self.process.is_serving or not self.process.is_up, self.scheduler.now + 60)

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(lambda: False, self.scheduler.now + seconds)

    async def fill(self, topic: str, batches: int) -> None:
        configs = {"cleanup.policy": "compact", "internal.segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}
        await create_topic(self.client, topic, 1, configs)
        for number in range(batches):
            builder = BatchBuilder()
            builder.append(1_700_000_000_000, b"key", b"value %d" % number)
            data = PartitionProduceData(index=0, records=builder.build())
            topics = [TopicProduceData(name=topic, partition_data=[data])]
            await self.client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9, ProduceResponse)


def test_a_compacted_log_is_whole_after_a_kill() -> None:
    """Compaction had gone past the recovery point that was written down, and recovery cut the log at its gap."""
    machine = Machine()
    filling = machine.loop.create_task(machine.fill("table", 30))
    assert machine.scheduler.run_until(filling.done, 60)
    machine.run(2)
    assert machine.process.broker is not None
    before = machine.process.broker.partitions.find("table", 0).log
    assert before.segments[0].size < 10 * 80, "it was not compacted"
    machine.process.kill()
    machine.start()
    assert machine.process.broker.partitions.find("table", 0).log.log_end == before.log_end == 30


def test_records_that_cannot_be_read_end_the_connection_and_nothing_else() -> None:
    """A disk that failed, or a file that was cut, under an answer: half of it must not be taken for the whole."""
    machine = Machine()
    filling = machine.loop.create_task(machine.fill("table", 3))
    assert machine.scheduler.run_until(filling.done, 60)
    [path] = machine.disk.files("table-0/00000000000000000000.log")

    def fetched() -> BaseException | None:
        fetching = machine.loop.create_task(fetch(machine.client, ("table", 0), 0))
        assert machine.scheduler.run_until(fetching.done, machine.scheduler.now + 60)
        return fetching.exception()

    assert fetched() is None
    machine.disk.faults.append(Fault(Effect.FAIL, "read", path, times=1))
    assert isinstance(fetched(), NoAnswer)
    assert fetched() is None
    machine.disk.cut_file(path, machine.disk.file_size(path) - 1)
    assert isinstance(fetched(), NoAnswer)
    assert machine.scheduler.failures == []


def test_our_producer_waits_while_no_broker_is_known() -> None:
    """It asked for the leader, was told at once that nobody knows it, and asked again, without a pause between."""
    machine = Machine()
    sent: list[int] = []

    async def produce() -> None:
        await create_topic(machine.client, "table", 1, {})
        async with AsyncProducer(
            bootstrap_servers="broker:9092",
            rng=Random(1),
            clock=machine.process.clock.wall_ms,
            request_timeout_ms=1000,
        ) as producer:
            for number in range(2):
                sent.append((await producer.send_and_wait("table", b"value %d" % number)).offset)
                machine.process.kill()

    producing = machine.loop.create_task(produce())
    machine.run(10)
    assert sent == [0]
    assert machine.scheduler.steps < 20_000
    machine.start()
    machine.run(10)
    assert sent == [0, 1]
    machine.start()
    assert machine.scheduler.run_until(producing.done, machine.scheduler.now + 60)
    assert producing.exception() is None


def test_a_start_on_a_failed_metadata_disk_says_so() -> None:
    machine = Machine()
    machine.process.kill()
    machine.disk.faults.append(Fault(Effect.FAIL, "write", "__cluster_metadata", times=-1))
    machine.start()
    assert not machine.process.is_up
    assert isinstance(machine.process.start_error, OSError | StorageError)


def test_a_rotten_batch_costs_its_partition_and_nothing_else() -> None:
    """The first to read it took the only directory offline, and the broker with it, after every start anew."""
    machine = Machine()
    for topic in ("sound", "rotten"):
        filling = machine.loop.create_task(machine.fill(topic, 12))
        assert machine.scheduler.run_until(filling.done, machine.scheduler.now + 60)
    path = machine.disk.files("rotten-0/")[0].rpartition("/")[0] + "/00000000000000000000.log"
    for bit in range(16 * 8, 17 * 8):
        machine.disk.flip_bit(path, bit)  # the version of the first batch

    def fetched(topic: str) -> ErrorCode:
        fetching = machine.loop.create_task(fetch(machine.client, (topic, 0), 0))
        assert machine.scheduler.run_until(fetching.done, machine.scheduler.now + 60)
        return fetching.result()[0]

    assert fetched("rotten") is ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched("rotten") is ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched("sound") is ErrorCode.NONE
    assert machine.process.is_serving


def test_whoever_first_reads_from_a_failed_disk_takes_its_directory_offline_at_once() -> None:
    """A reader was told, and nobody else, until something was written there."""
    machine = Machine()
    filling = machine.loop.create_task(machine.fill("table", 12))
    assert machine.scheduler.run_until(filling.done, machine.scheduler.now + 60)
    broker = machine.process.broker
    assert broker is not None
    log = broker.partitions.find("table", 0).log
    machine.disk.faults.append(Fault(Effect.FAIL, "read", log.segments[0].log.path, times=1))
    fetching = machine.loop.create_task(fetch(machine.client, ("table", 0), 0))
    machine.scheduler.run_until(fetching.done, machine.scheduler.now + 60)
    assert broker.partitions.dirs.any_offline


def test_a_rotten_index_costs_nothing() -> None:
    machine = Machine()
    filling = machine.loop.create_task(machine.fill("rotten", 12))
    assert machine.scheduler.run_until(filling.done, machine.scheduler.now + 60)
    broker = machine.process.broker
    assert broker is not None
    segment = broker.partitions.find("rotten", 0).log.segments[0]
    path = segment.offset_index.ref.path
    segment.offset_index.replaced(1, bytes(7) + b"\x05")  # as if it had an entry, which its file does not have
    fetching = machine.loop.create_task(fetch(machine.client, ("rotten", 0), 1))
    assert machine.scheduler.run_until(fetching.done, machine.scheduler.now + 60)
    assert fetching.result()[0] is ErrorCode.NONE
    machine.run(1)
    assert machine.disk.file_size(path) == segment.offset_index.entries * 8, "the index was not built anew"
    assert broker.partitions.find("rotten", 0).log.damaged_indexes == {}
