"""Mistakes that nobody would see: the broker logs them and goes on, and who was refused tries again."""

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.apis import k02_list_offsets
from mainstem.broker.housekeeping import Housekeeping
from mainstem.broker.partition import Partition
from mainstem.broker.partitions import Partitions
from mainstem.storage.errors import StorageError

Reached = Callable[[], None]


def handlers_fail_once(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: who is the first to ask a broker where a partition begins or ends is told UNKNOWN_SERVER_ERROR."""
    original = k02_list_offsets._find
    asked: list[Any] = []

    async def find(broker: Any, partition: Any, wanted: Any, request: Any, version: int) -> Any:
        if broker not in asked:
            asked.append(broker)
            reached()
            raise KeyError(partition)
        return await original(broker, partition, wanted, request, version)

    patch.setattr(k02_list_offsets, "_find", find)


def jobs_fail(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: the job that forgets silent producers does its work, and then fails."""
    original = Housekeeping._expire_producers

    async def expire(self: Housekeeping) -> None:
        await original(self)
        reached()
        raise KeyError("silent")

    patch.setattr(Housekeeping, "_expire_producers", expire)


def logs_fail_alone(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Our own: an error of the disk takes one log offline, and the rest of its directory goes on."""

    def failed(self: Partitions, partition: Partition, error: StorageError) -> None:
        directory = self.dirs.directory_of(partition.topic, partition.index)
        if directory is None or directory.offline is not None:
            return
        if (partition.topic, partition.index) in self.dirs.logs:
            reached()
            self._log_damaged(partition, error)

    patch.setattr(Partitions, "log_failed", failed)
