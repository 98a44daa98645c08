"""A broker in this process, on a loop in a thread of its own: up in a fraction of a second, gone without a trace.

It is the same broker that `mainstem up` runs, on real files and real sockets; only that its flushes and its timers are
tuned for tests, and that there are faults before it. It listens on 127.0.0.1, on a free port that it keeps over `kill`
and `restart`.

- `kill` is like kill -9: connections drop, nothing is flushed or marked clean, what was in the middle stays there.
- `pause` is like SIGSTOP: connections stay and can even be made, but nobody answers until `resume`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import uvloop

from mainstem.broker.app import Broker
from mainstem.broker.clock import SystemClock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.format import format_directories
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import raise_for
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.storage.meta_properties import read_meta_properties
from mainstem.testing.faults import NODE_ID, Faults
from mainstem.testing.files import MortalFileSystem

T = TypeVar("T")
log = logging.getLogger(__name__)

WAIT_S: Final = 60.0
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}

_graveyard: list[object] = []
"""Loops and brokers that were killed in the middle of things. The collector must not finish for them what a dead
process leaves undone, so they stay until this process ends, too."""


class Cluster:
    """`settings` are a broker's, by Kafka's names. A `data_dir` that is given is kept; else it is a temporary one."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
    ) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._topics = dict(topics or {})
        self._given_dir = data_dir
        self._data_dir = ""
        self._port = port
        self._faults = Faults()
        self._running: _Running | None = None
        self._resumed: threading.Event | None = None

    # Beginning and end

    def start(self) -> Self:
        """Starts the broker; with the data that is there, if it ran before."""
        if self._running is not None:
            return self
        if not self._data_dir:
            self._data_dir = str(self._given_dir or tempfile.mkdtemp(prefix="mainstem-"))
        self._running = _Running(self._settings, self._data_dir, self._port, self._faults)
        self._port = self._running.port
        for topic, partitions in self._topics.items():
            self.create_topic(topic, partitions)
        self._topics = {}
        return self

    def stop(self) -> None:
        """A clean stop. The data stays; `start` goes on with it."""
        self.resume()
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def close(self) -> None:
        """Stops it and removes its data."""
        try:
            self.stop()
        finally:
            if self._data_dir and self._given_dir is None:
                shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Where it is

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        if not self._port:
            raise RuntimeError("the cluster was never started; use 'with Cluster() as cluster:'")
        return self._port

    @property
    def data_dir(self) -> Path:
        return Path(self._data_dir)

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Makes a topic. A client's admin does it as well; this needs none."""
        if self._running is None:
            raise RuntimeError("the cluster is not running")
        self._running.run(_create_topic(self.port, name, partitions, configs or {}))

    # Hard times

    def kill(self) -> None:
        """As kill -9 does."""
        self.resume()
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def restart(self) -> None:
        """Starts it again after `kill`, or stops it cleanly and starts it again. Same port, same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """As SIGSTOP does, until `resume`."""
        if self._running is None or self._resumed is not None:
            return
        self._resumed = threading.Event()
        self._running.freeze(self._resumed)

    def resume(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            resumed.set()

    def delay(self, api: str, seconds: float) -> None:
        """Has every request of an API wait before it is looked at; 0 ends that."""
        self._faults.delay(api, seconds)

    def fail(self, api: str, error: ErrorCode | int | str, times: int | None = 1) -> None:
        """Answers the next `times` requests of an API with an error instead of carrying them out; None for all."""
        self._faults.fail(api, error, times)

    def disconnect(self, api: str, times: int | None = 1, *, carried_out: bool = False) -> None:
        """Drops the connection upon the next `times` requests of an API: before they are carried out, or after."""
        self._faults.disconnect(api, times, carried_out=carried_out)

    def heal(self) -> None:
        """Ends all delays, errors and lost connections, and a pause."""
        self._faults.clear()
        self.resume()

    def requests(self, api: str) -> int:
        """How many requests of an API have come since the beginning."""
        return self._faults.requests(api)


class _Running:
    """One life of the broker: a thread, a loop, files."""

    def __init__(self, settings: Mapping[str, str], data_dir: str, port: int, faults: Faults) -> None:
        self._files = MortalFileSystem()
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="mainstem-broker")
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._serve, name="mainstem-broker", daemon=True)
        self._thread.start()
        try:
            self._broker = self.run(self._start(settings, data_dir, port, faults))
        except BaseException:
            self._end()
            self._files.die()
            raise
        self.port = next(one.port for one in self._broker.advertised)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _start(self, settings: Mapping[str, str], data_dir: str, port: int, faults: Faults) -> Broker:
        wanted = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
            "log.dirs": data_dir,
            **settings,
        }
        config = BrokerConfig(wanted)
        format_directories(self._files, random.SystemRandom(), config, SystemClock().wall_ms(), ignore_formatted=True)
        meta = read_meta_properties(self._files, config.metadata_dir)
        assert meta is not None
        broker = Broker(
            self._loop,
            self._files,
            SystemClock(),
            random.Random(os.urandom(16)),
            config,
            meta.cluster_id,
            on_fatal=lambda error: log.critical("the broker cannot go on: %s", error),
            around=faults.around(self._loop),
        )
        await broker.start()
        return broker

    def freeze(self, resumed: threading.Event) -> None:
        frozen = threading.Event()

        def hold() -> None:
            frozen.set()
            resumed.wait()

        self._loop.call_soon_threadsafe(hold)
        frozen.wait(WAIT_S)

    def stop(self) -> None:
        try:
            self.run(self._broker.stop())
        finally:
            self._end()
            self._files.die()
            self._loop.close()

    def kill(self) -> None:
        async def drop() -> list[asyncio.Task[Any]]:
            self._broker.close_listeners()
            tasks = list(asyncio.all_tasks())
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # that is what a kill does
            return tasks

        tasks = self.run(drop())
        self._end()
        self._broker.drop_threads()
        self._files.die()
        self._loop.close()
        _graveyard.append((self._loop, self._broker, tasks))

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._executor.shutdown(wait=True, cancel_futures=True)


async def _create_topic(port: int, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    connection = await BrokerConnection.open("127.0.0.1", port, "mainstem-testing")
    try:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        answer = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        raise_for(answer.topics[0].error_code, answer.topics[0].error_message, topic=name)
    finally:
        connection.close()
