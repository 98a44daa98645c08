"""Our producer and our broker on simulated machines: whatever goes wrong, each record is written once and in order.

The producer's code is the product's own, on the simulator's loop: its time, randomness and network are given to it.
"""

import asyncio
from random import Random

import pytest

from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_types import NewTopic
from mainstem.client.batches import SendFuture
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaTimeoutError
from mainstem.client.producer import AsyncProducer
from mainstem.protocol.batch import iterate_batches
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from mainstem.protocol.records import iterate_records
from tests.sim.client_scene import BOOTSTRAP, ClientScene

PARTITIONS = 2
ROUNDS = 150


class Scene(ClientScene):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sent: list[list[SendFuture]] = [[] for _ in range(PARTITIONS)]
        self.is_over = False

    def run(self) -> None:
        task = self.loop.create_task(self._story())
        self.scheduler.later(0.5, self._do_harm_until_all_is_sent)
        assert self.scheduler.run_until(task.done, 600), "the producer did not finish"
        task.result()

    def _do_harm_until_all_is_sent(self) -> None:
        if not self.is_over:
            self.do_harm(zombies=True)
            self.scheduler.later(self.rng.uniform(0.02, 0.6), self._do_harm_until_all_is_sent)

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


def test_a_record_in_flight_fails_at_the_moment_its_time_is_up_whenever_it_was_sent() -> None:
    """Compared by a difference and armed by a sum, that moment was not there yet by the last bit, again and again."""
    scene = ClientScene(1)

    async def story() -> None:
        async with (
            AsyncAdmin(bootstrap_servers=BOOTSTRAP, rng=Random(1)) as admin,
            AsyncProducer(
                bootstrap_servers=BOOTSTRAP,
                rng=Random(1),
                clock=scene.process.clock.wall_ms,
                request_timeout_ms=500,
                delivery_timeout_ms=600,
            ) as producer,
        ):
            await admin.create_topics([NewTopic("log", 1, 1)])
            await producer.send_and_wait("log", b"first")
            broker = scene.process.loop
            assert broker is not None
            for number in range(20):
                broker.pause()
                sent = await producer.send("log", b"%d" % number)
                # Sent so late that its own time is up before that of its request.
                scene.loop.pause()
                scene.scheduler.later(0.2 + scene.rng.random() / 10, scene.loop.resume)
                with pytest.raises(KafkaTimeoutError, match="within delivery_timeout_ms"):
                    await sent
                broker.resume()
                await asyncio.sleep(0.5)

    task = scene.loop.create_task(story())
    assert scene.scheduler.run_until(task.done, 60)
    task.result()


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_the_same_for_many_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        Scene(seed).run()
