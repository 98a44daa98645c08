"""Tells the controller which log directory holds each replica of this broker (KIP-858).

With one directory the controller knows by itself. With several the broker chooses, and says so: what the metadata has
wrong is collected for a turn of the loop and sent in one request; what was refused or lost is sent again later.
Of a directory that failed the controller hears as well: what it did not know to be there would stay led by nobody.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mainstem.core.controller.image import ClusterImage, ImageDelta
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from mainstem.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

log = logging.getLogger(__name__)

_VERSION: Final = 0
_RETRY_S: Final = 1.0


class DirectoryAssignments:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._pending: dict[tuple[bytes, int], None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        for topic_id, index in delta.partitions:
            self.check(topic_id, index)

    def named(self, topic_id: bytes, index: int) -> bytes | None:
        """The directory that the metadata names for this broker's replica; None where it knows of no replica here."""
        topic = self._broker.image.topics_by_id.get(topic_id)
        state = None if topic is None else topic.partitions.get(index)
        if state is None or self._broker.node_id not in state.replicas:
            return None
        return state.directory_of(self._broker.node_id)

    def is_wrong(self, topic_id: bytes, index: int) -> bool:
        """Whether the metadata names another directory than the one that holds the replica."""
        return self._wanted(topic_id, index) is not None

    def check(self, topic_id: bytes, index: int) -> None:
        """Has the controller told of a replica's directory, unless the metadata says the same."""
        if self.is_wrong(topic_id, index):
            self._pending[topic_id, index] = None
            self._send_soon()

    def directory_failed(self, directory: LogDirectory) -> None:
        """Has the controller told of what was in a directory, where it does not know: it can lead none of it."""
        for topic, index in directory.partitions:
            found = self._broker.image.topics.get(topic)
            if found is not None:
                self.check(found.topic_id, index)

    def stop(self) -> None:
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()

    def _wanted(self, topic_id: bytes, index: int) -> bytes | None:
        """The directory that the controller should hear of, or None where it knows."""
        named = self.named(topic_id, index)
        if named is None:
            return None
        directory = self._broker.partitions.dirs.directory_of(self._broker.image.topics_by_id[topic_id].name, index)
        if directory is None:
            return None
        return None if named == directory.directory_id else directory.directory_id

    def _send_soon(self) -> None:
        if self._sending is None and not self._stopped:
            self._sending = self._broker.loop.create_task(self._send())

    async def _send(self) -> None:
        broker = self._broker
        if self._retry is not None:
            # It has come, or this is earlier. What is found wrong while this is under way is sent right after it.
            self._retry.cancel()
            self._retry = None
        pending, self._pending = self._pending, {}
        directories: dict[bytes, dict[bytes, list[PartitionData]]] = {}
        for topic_id, index in pending:
            wanted = self._wanted(topic_id, index)
            if wanted is not None:
                directories.setdefault(wanted, {}).setdefault(topic_id, []).append(PartitionData(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[TopicData(topic_id=topic, partitions=found) for topic, found in topics.items()],
                )
                for directory, topics in directories.items()
            ],
        )
        try:
            if directories and not await self._told(request):
                self._pending = pending | self._pending
                self._retry = broker.loop.call_later(_RETRY_S, self._send_soon)
        finally:
            self._sending = None
        if self._pending and self._retry is None:
            self._send_soon()

    async def _told(self, request: AssignReplicasToDirsRequest) -> bool:
        try:
            answer = await self._broker.controller.send(request, _VERSION)
        except RemoteError as error:
            log.warning("the controller was not told where replicas are: %s", error)
            return False
        assert isinstance(answer, AssignReplicasToDirsResponse)
        if answer.error_code != ErrorCode.NONE:
            log.warning("the controller was not told where replicas are: %s", ErrorCode(answer.error_code).name)
        return answer.error_code == ErrorCode.NONE
