"""Our consumers and our broker on simulated machines: whatever goes wrong, records are read in order and none is lost.

The consumers' code is the product's own, on the simulator's loop: its time, randomness and network are given to it. One
reads alone, and gets every record once. Two share the partitions in a group and commit what they have read: somebody
gets every record, and nobody goes back further than to what was committed.
"""

import asyncio
import contextlib
from random import Random

import pytest

from mainstem.client.admin import AsyncAdmin
from mainstem.client.admin_types import NewTopic
from mainstem.client.consumer import AsyncConsumer
from mainstem.client.errors import KafkaError
from mainstem.client.types import TopicPartition
from tests.sim.client_scene import BOOTSTRAP, ClientScene
from tests.support.client_load import Writer

TOPIC = "log"
PARTITIONS = 3
ROUNDS = 120


class Scene(ClientScene):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"})
        self.sent = [0] * PARTITIONS
        self.alone: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.shared: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS
        self.perhaps_committed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        """What was written down, or not: the answer was lost."""
        self.rewinds: list[str] = []
        self.is_sent = False
        self.is_over = False

    def run(self) -> None:
        task = self.loop.create_task(self._story())
        self.scheduler.later(1.0, self._do_harm_until_all_is_sent)
        assert self.scheduler.run_until(task.done, 1200), (self.sent, self.alone, self.shared)
        task.result()

    def _do_harm_until_all_is_sent(self) -> None:
        if self.is_sent:
            self.network.heal()
            self.network.faults.slow_share = self.network.faults.lose_answer_share = 0.0
            self.start_broker()
            return
        self.do_harm()
        self.scheduler.later(self.rng.uniform(0.05, 1.0), self._do_harm_until_all_is_sent)

    def _options(self, name: str) -> dict[str, object]:
        return {
            "bootstrap_servers": BOOTSTRAP,
            "client_id": name,
            "rng": Random(f"{self.seed}:{name}"),
            "clock": self.process.clock.wall_ms,
            "request_timeout_ms": 3000,
        }

    async def _story(self) -> None:
        async with AsyncAdmin(bootstrap_servers=BOOTSTRAP, rng=self.rng, client_id="admin") as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        strategy = self.rng.choice(["range", "sticky", "cooperative-sticky"])
        readers = [
            asyncio.ensure_future(self._read_alone()),
            asyncio.ensure_future(self._read_in_group("one", strategy)),
            asyncio.ensure_future(self._read_in_group("two", strategy)),
        ]
        await self._write()
        while not self._is_all_read():
            for reader in readers:
                if reader.done():
                    reader.result()
            await asyncio.sleep(0.1)
        self.is_over = True
        await asyncio.gather(*readers)

    def _is_all_read(self) -> bool:
        return [len(each) for each in self.alone] == self.sent and [len(set(each)) for each in self.shared] == self.sent

    async def _write(self) -> None:
        """Writes as well as that goes: what is in the log in the end is what is to be read."""
        writer = Writer(BOOTSTRAP)
        for _ in range(ROUNDS):
            values, now_ms = [b"x"] * self.rng.randint(1, 6), self.process.clock.wall_ms()
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.send_once(TOPIC, self.rng.randrange(PARTITIONS), values, now_ms, 0, ())
            await asyncio.sleep(self.rng.uniform(0, 0.1))
        self.is_sent = True
        await asyncio.sleep(3)
        async with AsyncConsumer(**self._options("ends")) as consumer:  # type: ignore[arg-type]
            partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            self.sent = list((await consumer.end_offsets(partitions)).values())

    async def _read_alone(self) -> None:
        async with AsyncConsumer(**self._options("alone"), auto_offset_reset="earliest") as consumer:  # type: ignore[arg-type]
            await consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            while not self.is_over:
                for record in await consumer.poll(500, max_records=7):
                    self.alone[record.partition].append(record.offset)

    async def _read_in_group(self, name: str, strategy: str) -> None:
        consumer = AsyncConsumer(
            TOPIC,
            **self._options(name),  # type: ignore[arg-type]
            group_id="group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            default_api_timeout_ms=4000,
            partition_assignment_strategy=strategy,
        )
        last: dict[int, int] = {}
        async with consumer:
            while not self.is_over:
                for record in await consumer.poll(500, max_records=7):
                    partition, value = record.partition, record.offset
                    goes_on = value == last.get(partition, -1) + 1 or value in self.perhaps_committed[partition]
                    if not goes_on and value > self.committed[partition]:
                        self.rewinds.append(f"{name} got {value} of {partition} after {last.get(partition)}")
                    last[partition] = value
                    self.shared[partition].append(value)
                try:
                    await consumer.commit()
                except KafkaError:
                    for tp in consumer.assignment:
                        self.perhaps_committed[tp.partition].add(last.get(tp.partition, -1) + 1)
                    continue
                for tp in consumer.assignment:
                    self.committed[tp.partition] = max(self.committed[tp.partition], last.get(tp.partition, -1) + 1)


@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_read_and_by_a_lone_reader_once_and_in_order(seed: int) -> None:
    scene = Scene(seed)
    scene.run()
    assert sum(scene.sent) > ROUNDS
    assert scene.alone == [list(range(count)) for count in scene.sent]
    assert [sorted(set(each)) for each in scene.shared] == scene.alone
    assert scene.rewinds == []


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_the_same_for_many_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        test_every_record_is_read_and_by_a_lone_reader_once_and_in_order(seed)
