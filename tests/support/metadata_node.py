"""A node's metadata without its sockets: quorum, controller and lifecycle on any file system, for tests."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from mainstem.broker.clock import SystemClock
from mainstem.broker.config import BrokerConfig
from mainstem.broker.drivers.controller import (
    ActiveController,
    Carry,
    ControllerChannel,
    carry_directly,
    controller_settings,
)
from mainstem.broker.drivers.lifecycle import BrokerIdentity, BrokerLifecycle
from mainstem.broker.drivers.quorum import MetadataQuorum, QuorumSettings
from mainstem.broker.format import format_directories
from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.storage.clean_shutdown import take_marker, write_marker
from mainstem.storage.fs import FileSystem
from mainstem.storage.meta_properties import read_meta_properties

CLUSTER_ID = "bWFpbnN0ZW0tdGVzdHMtMQ"


class InlineLoop(asyncio.SelectorEventLoop):
    """Runs what belongs in a thread where it stands: a simulated disk belongs to one thread."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def node_config(directory: str, **settings: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


class MetadataNode:
    """`start` formats the directory if need be, and returns when the broker is unfenced."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fs: FileSystem,
        directory: str,
        *,
        seed: int | None = None,
        carry: Carry = carry_directly,
        **settings: str,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.failures: list[BaseException] = []
        self.followed: list[tuple[int, ImageDelta]] = []
        self.rng = Random(seed)
        self.clock = SystemClock()
        self._loop = loop
        self._config = node_config(directory, **settings)
        if read_meta_properties(fs, directory) is None:
            format_directories(fs, self.rng, self._config, self.clock.wall_ms(), CLUSTER_ID)
        meta = read_meta_properties(fs, directory)
        assert meta is not None
        self.quorum = MetadataQuorum(
            loop, fs, self.clock, QuorumSettings.from_config(self._config, meta.directory_id), self.failures.append
        )
        self.controller = ActiveController(
            loop, self.clock, self.rng, self.quorum, controller_settings(self._config, meta.cluster_id)
        )
        self.channel = ControllerChannel(self.controller.handle, carry)
        self.quorum.load([self.controller.image])
        self.quorum.follow(self._follow)
        identity = BrokerIdentity(
            1,
            meta.cluster_id,
            [("PLAINTEXT", "127.0.0.1", 29092)],
            [meta.directory_id],
            None,
            take_marker(fs, directory).broker_epoch,
        )
        self.lifecycle = BrokerLifecycle(loop, self.rng, self.channel, identity, lambda: self.quorum.followed_end - 1)

    @property
    def image(self) -> ClusterImage:
        return self.quorum.image

    async def _follow(self, image: ClusterImage, delta: ImageDelta, offset: int) -> None:
        self.followed.append((offset, delta))

    async def start(self) -> None:
        await self.quorum.start()
        await self.controller.activate()
        await self.lifecycle.register()
        await self.lifecycle.unfence()

    async def stop(self) -> None:
        assert await self.lifecycle.shut_down()
        self.controller.stop()
        await self.quorum.stop()
        write_marker(self.fs, self.directory, self.lifecycle.epoch)

    def abandon(self) -> None:
        """As a killed process does: nothing more happens."""
        self.lifecycle.stop()
        self.controller.stop()
