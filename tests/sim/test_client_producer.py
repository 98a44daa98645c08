"""Our producer and our broker on simulated machines: whatever goes wrong, each record is written once and in order.

The producer's code is the product's own, on the simulator's loop: its time, randomness and network are given to it.
"""

import asyncio
from random import Random

import pytest

from mainstem.broker.config import BrokerConfig
from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_types import NewTopic
from mainstem.client.batches import SendFuture
from mainstem.client.connection import BrokerConnection
from mainstem.client.producer import AsyncProducer
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from mainstem.protocol.records import iterate_records
from mainstem.sim.broker_process import BrokerProcess
from mainstem.sim.disk import SimDisk
from mainstem.sim.loop import Scheduler, SimLoop, make_loop
from mainstem.sim.network import Network

BOOTSTRAP = "broker:9092"
PARTITIONS = 2
ROUNDS = 150


class Scene:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}:scene")
        self.scheduler = Scheduler(Random(f"{seed}:sched"))
        self.network = Network(self.scheduler, Random(f"{seed}:net"), lambda *event: None, lambda what: None)
        self.disk = SimDisk(Random(f"{seed}:disk"), lambda: self.process.clock.wall_ms())
        self.disk.make_directories("/")
        config = BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": "/data",
            }
        )
        self.process = BrokerProcess(
            str(seed), self.scheduler, self.network, self.disk, config, lambda *event: None, lambda what: None
        )
        self.process.format()
        self.process.start()
        self.loop: SimLoop = make_loop(self.scheduler, Random(f"{seed}:client"), "client", self.network)
        self.sent: list[list[SendFuture]] = [[] for _ in range(PARTITIONS)]
        self.is_over = False

    def run(self) -> None:
        task = self.loop.create_task(self._story())
        self.scheduler.later(0.5, self._do_harm)
        assert self.scheduler.run_until(task.done, 600), "the producer did not finish"
        task.result()

    def _do_harm(self) -> None:
        """Something goes wrong every now and then, until the records are all sent."""
        if self.is_over:
            return
        rng = self.rng
        match rng.randrange(5):
            case 0 if self.process.is_up:
                self.process.kill()
                self.scheduler.later(rng.uniform(0.05, 1.0), self._start)
            case 1 if self.network.connections:
                self.network.reset(rng.choice(sorted(self.network.connections)), "harm")
            case 2:
                self.network.cut("client", "broker", rng.uniform(0.01, 2.0))
            case 3:
                self.network.cut("broker", "client", rng.uniform(0.01, 2.0))
            case 4:
                self.network.faults.slow_share = rng.choice((0.0, 0.3))
                self.network.faults.lose_answer_share = rng.choice((0.0, 0.1))
                self.network.faults.zombie_share = rng.choice((0.0, 0.1))
        self.scheduler.later(rng.uniform(0.02, 0.6), self._do_harm)

    def _start(self) -> None:
        if not self.process.is_up:
            self.process.start()

    async def _story(self) -> None:
        rng, clock = Random(f"{self.seed}:producer"), self.process.clock.wall_ms
        async with AsyncAdmin(bootstrap_servers=BOOTSTRAP, rng=rng, client_id="admin") as admin:
            await admin.create_topics([NewTopic("log", PARTITIONS, 1)])
        async with AsyncProducer(
            bootstrap_servers=BOOTSTRAP,
            rng=rng,
            clock=clock,
            linger_ms=self.rng.choice((0, 5, 50)),
            batch_size=self.rng.choice((100, 16_384)),
            request_timeout_ms=self.rng.choice((300, 5000)),
            delivery_timeout_ms=600_000,
        ) as producer:
            for _ in range(ROUNDS):
                for partition, futures in enumerate(self.sent):
                    for _ in range(self.rng.randint(0, 4)):
                        futures.append(await producer.send("log", b"%d" % len(futures), partition=partition))
                await asyncio.sleep(self.rng.uniform(0, 0.08))
            self.is_over = True
            await producer.flush()
        self.network.heal()
        while not self.process.is_serving:
            await asyncio.sleep(0.1)
        for partition, futures in enumerate(self.sent):
            assert await read(partition) == [b"%d" % at for at in range(len(futures))]
            assert [future.result().offset for future in futures] == list(range(len(futures)))


async def read(partition: int) -> list[bytes | None]:
    connection = await BrokerConnection.open("broker", 9092)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic="log",
                partitions=[FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=50 << 20)],
            )
        ],
        forgotten_topics_data=[],
    )
    answer = await connection.ask(request, FetchResponse, version=12)
    connection.close()
    data = answer.responses[0].partitions[0].records or b""
    return [record.value for batch in iterate_batches(data, 0, len(data)) for record in iterate_records(batch)]


@pytest.mark.parametrize("seed", range(8))
def test_each_record_is_written_once_and_in_order_whatever_goes_wrong(seed: int) -> None:
    Scene(seed).run()


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_the_same_for_many_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        Scene(seed).run()
