"""aiokafka behind lines of JSON; `client.py` says which."""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import for_code

from tests.compat.drivers.serving import plain, to_bytes

BOOTSTRAP = sys.argv[1]
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def _plain(one: Any) -> dict[str, Any]:
    return plain(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)


def _raise(code: int, what: object = "") -> None:
    if code:
        raise for_code(code)(what)


class Member:
    def __init__(self, r: dict[str, Any]) -> None:
        self.topic = r["topic"]
        self.consumer = AIOKafkaConsumer(
            r["topic"],
            bootstrap_servers=BOOTSTRAP,
            group_id=r["group"],
            group_instance_id=r["instance"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(ASSIGNORS[r["assignor"]],),
        )
        self.records: list[dict[str, Any]] = []
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.consumer.start()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for one in self.consumer:
            self.records.append(_plain(one))

    def state(self) -> dict[str, Any]:
        owned = sorted(one.partition for one in self.consumer.assignment())
        return {"assignment": owned, "records": self.records, "rebalances": 0}

    async def leave(self) -> None:
        if self.task is not None:
            self.task.cancel()
        await self.consumer.stop()


class Driver:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.producers: dict[str, AIOKafkaProducer] = {}
        self.begun: set[str] = set()
        self.started: AIOKafkaAdminClient | None = None

    async def admin(self) -> Any:
        if self.started is None:
            self.started = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
            await self.started.start()
        return self.started

    async def produce(self, r: dict[str, Any]) -> list[list[int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            compression_type=None if r["codec"] == "none" else r["codec"],
            acks="all" if r["acks"] == "all" else int(r["acks"]),
            enable_idempotence=r["idempotent"],
            linger_ms=20,
            request_timeout_ms=20_000,
        )
        async with producer:
            sent = [
                await producer.send(
                    r["topic"],
                    value=to_bytes(one["value"]),
                    key=to_bytes(one["key"]),
                    headers=[(name, to_bytes(value)) for name, value in one["headers"]],
                    partition=one["partition"],
                    timestamp_ms=one["timestamp"],
                )
                for one in r["records"]
            ]
            done = [await one for one in sent]
        # With acks=0 the client has nothing to tell but the partition that was asked for.
        return [
            [asked["partition"], -1] if r["acks"] == "0" else [one.partition, one.offset]
            for asked, one in zip(r["records"], done, strict=True)
        ]

    async def txn_init(self, r: dict[str, Any]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=r["id"], request_timeout_ms=20_000)
        await producer.start()
        self.producers[r["producer"]] = producer

    async def _in_transaction(self, r: dict[str, Any]) -> AIOKafkaProducer:
        producer = self.producers[r["producer"]]
        if r["producer"] not in self.begun:
            await producer.begin_transaction()
            self.begun.add(r["producer"])
        return producer

    async def txn_send(self, r: dict[str, Any]) -> None:
        producer = await self._in_transaction(r)
        sent = [await producer.send(r["topic"], value.encode(), partition=r["partition"]) for value in r["values"]]
        for one in sent:
            await one

    async def txn_offset(self, r: dict[str, Any]) -> None:
        producer = await self._in_transaction(r)
        await producer.send_offsets_to_transaction({TopicPartition(r["topic"], 0): r["offset"]}, r["group"])

    async def txn_end(self, r: dict[str, Any]) -> None:
        producer = self.producers[r["producer"]]
        self.begun.discard(r["producer"])
        await (producer.commit_transaction() if r["commit"] else producer.abort_transaction())

    async def fetch(self, r: dict[str, Any]) -> list[dict[str, Any]]:
        partition = TopicPartition(r["topic"], r["partition"])
        found: list[dict[str, Any]] = []
        isolation = "read_committed" if r["committed"] else "read_uncommitted"
        async with AIOKafkaConsumer(
            bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", isolation_level=isolation
        ) as consumer:
            consumer.assign([partition])
            if r["offset"] is not None:
                consumer.seek(partition, r["offset"])
            elif r["timestamp"] is not None:
                at = await consumer.offsets_for_times({partition: r["timestamp"]})
                consumer.seek(partition, at[partition].offset)
            else:
                await consumer.seek_to_beginning(partition)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + 15
            while len(found) < r["count"] and loop.time() < deadline:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found += [_plain(one) for one in batch]
        return found

    async def join(self, r: dict[str, Any]) -> None:
        self.members[r["member"]] = Member(r)
        await self.members[r["member"]].start()

    async def state(self, r: dict[str, Any]) -> dict[str, Any]:
        return self.members[r["member"]].state()

    async def commit(self, r: dict[str, Any]) -> None:
        await self.members[r["member"]].consumer.commit()

    async def leave(self, r: dict[str, Any]) -> None:
        await self.members.pop(r["member"]).leave()

    async def create_topic(self, r: dict[str, Any]) -> None:
        made = NewTopic(r["topic"], r["partitions"], 1, topic_configs=r["configs"])
        for answer in (await (await self.admin()).create_topics([made])).topic_errors:
            _raise(answer[1], answer)

    async def list_topics(self, r: dict[str, Any]) -> Any:
        return await (await self.admin()).list_topics()

    async def describe_topic(self, r: dict[str, Any]) -> dict[str, int]:
        topic = (await (await self.admin()).describe_topics([r["topic"]]))[0]
        _raise(topic["error_code"])
        return {"partitions": len(topic["partitions"]), "leader": topic["partitions"][0]["leader"]}

    async def create_partitions(self, r: dict[str, Any]) -> None:
        answer = await (await self.admin()).create_partitions({r["topic"]: NewPartitions(r["total"])})
        for one in answer.topic_errors:
            _raise(one[1], one)

    async def delete_topic(self, r: dict[str, Any]) -> None:
        for _, code in (await (await self.admin()).delete_topics([r["topic"]])).topic_error_codes:
            _raise(code)

    async def alter_topic_config(self, r: dict[str, Any]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, r["topic"], configs=r["configs"])
        for answer in await (await self.admin()).alter_configs([resource]):
            for one in answer.resources:
                _raise(one[0], one)

    async def describe_topic_config(self, r: dict[str, Any]) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType.TOPIC, r["topic"])
        found: dict[str, Any] = {}
        for answer in await (await self.admin()).describe_configs([resource]):
            for one in answer.resources:
                _raise(one[0], one)
                found |= {entry[0]: entry[1] for entry in one[4]}
        return found

    async def list_groups(self, r: dict[str, Any]) -> list[str]:
        return [one[0] for one in await (await self.admin()).list_consumer_groups()]

    async def describe_group(self, r: dict[str, Any]) -> dict[str, Any]:
        answer = (await (await self.admin()).describe_consumer_groups([r["group"]]))[0]
        group = answer.groups[0]
        _raise(group[0])
        return {"state": group[2], "members": len(group[5])}

    async def group_offsets(self, r: dict[str, Any]) -> dict[str, int]:
        found = await (await self.admin()).list_consumer_group_offsets(r["group"])
        return {str(at.partition): one.offset for at, one in found.items()}

    async def delete_records(self, r: dict[str, Any]) -> int:
        at = TopicPartition(r["topic"], r["partition"])
        return int((await (await self.admin()).delete_records({at: RecordsToDelete(r["before"])}))[at])

    async def offsets(self, r: dict[str, Any]) -> dict[str, int]:
        at = TopicPartition(r["topic"], r["partition"])
        async with AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP) as consumer:
            earliest, latest = await consumer.beginning_offsets([at]), await consumer.end_offsets([at])
        return {"earliest": earliest[at], "latest": latest[at]}


async def main() -> None:
    driver = Driver()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"ok": await getattr(driver, request["op"])(request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    for member in driver.members.values():
        await member.leave()


asyncio.run(main())
