"""Enough of a broker to ask its group coordinator: topics, a clock, and a log in memory for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import dropwhile
from random import Random
from types import SimpleNamespace
from typing import Any

from mainstem.broker.apis import served
from mainstem.broker.config import BrokerConfig
from mainstem.broker.context import RequestContext
from mainstem.broker.drivers.groups import Groups
from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.api import find_api
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.blank import blank
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from mainstem.protocol.records import Record, iterate_records
from mainstem.protocol.schema import Message

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
}


class MemoryLog:
    """A CoordinatorLog in memory. Commits follow at once, or when `commit` is called if `holds_commits`."""

    def __init__(self, batches: list[bytes] | None = None) -> None:
        self.batches: list[bytes] = []
        self.log_start = 0
        self.log_end = 0
        self.batch_bytes_max = 1 << 20
        self.fail_with: ErrorCode | None = None
        self.holds_commits = False
        self.high_watermark = 0
        self._waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []
        for batch in batches or []:
            self.append(batch)

    def append(self, batch: bytes, guard: int = 0, transaction_version: int = 0) -> int:
        if self.fail_with is not None:
            raise RemoteError(self.fail_with)
        view = BatchView(batch, 0)
        stamped = view.stamp(self.log_end, 0) + batch[16:]
        self.batches.append(stamped)
        self.log_end = BatchView(stamped, 0).next_offset
        if not self.holds_commits:
            self.commit()
        return self.log_end

    def commit(self, code: ErrorCode = ErrorCode.NONE) -> None:
        if code is ErrorCode.NONE:
            self.high_watermark = self.log_end
        waiting, self._waiting = self._waiting, []
        for end, callback in waiting:
            if code is not ErrorCode.NONE or end <= self.high_watermark:
                callback(code)
            else:
                self._waiting.append((end, callback))

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        if end_offset <= self.high_watermark:
            callback(ErrorCode.NONE)
        else:
            self._waiting.append((end_offset, callback))

    async def read(self, offset: int, max_bytes: int) -> bytes:
        await asyncio.sleep(0)
        found = list(dropwhile(lambda b: BatchView(b, 0).next_offset <= offset, self.batches))
        return b"".join(found)[: max(max_bytes, len(found[0]))] if found else b""

    def records(self) -> list[Record]:
        data = b"".join(self.batches)
        return [record for batch in iterate_batches(data, 0, len(data)) for record in iterate_records(batch)]


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def breathe(self) -> None:
        """Nobody waits."""


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\x01")


class CoordinatingBroker:
    def __init__(self, **settings: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.rng = Random(1)
        self.config = BrokerConfig(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
        self.image = ClusterImage()
        self.partitions = SimpleNamespace(get=lambda topic, index: None)
        for name, count in {"__consumer_offsets": 1, "t1": 2, "t2": 1}.items():
            self.create_topic(name, count)
        self.groups = Groups(self)  # type: ignore[arg-type]
        self.log = MemoryLog()
        self._handlers = {key: module.handle for key, module in served().items() if hasattr(module, "handle")}

    def create_topic(self, name: str, count: int) -> None:
        self.image.replay(TopicRecord(name=name, topic_id=topic_id(name)))
        for index in range(count):
            self.image.replay(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id(name),
                    replicas=[1],
                    isr=[1],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[bytes(16)],
                )
            )

    async def start(self, epoch: int = 0) -> None:
        """Leads the only partition of `__consumer_offsets` and has read it."""
        self.groups.runtime.elected(0, epoch, self.log)
        while not self.groups.runtime.shards[0].is_serving:
            await asyncio.sleep(0)

    async def call(self, request: Message, version: int, client_id: str = "cli") -> Any:
        """Asks as over the wire: what the version cannot carry does not get through."""
        decoded = type(request).decode(request.encode(version), version)
        context = RequestContext(request.API_KEY, version, 1, client_id, 0, "PLAINTEXT", "127.0.0.1:5000")
        try:
            answer = await self._handlers[request.API_KEY](self, context, decoded)
        except RemoteError as error:
            # As the router does.
            answer = blank(find_api(request.API_KEY).response)
            answer.error_code = error.code  # type: ignore[attr-defined]
        return type(answer).decode(answer.encode(version), version)
