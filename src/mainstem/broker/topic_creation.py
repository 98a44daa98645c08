"""Topics that come into being because somebody needs them: named in a Metadata request, or the broker's own.

A request for a topic that is on its way waits for it instead of asking the controller again. Kafka answers at once
that the topic is unknown and lets the client ask again; here the answer comes when the topic is there.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Final

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = (GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CREATE_VERSION: Final = 7


def is_legal_name(topic: str) -> bool:
    return topic not in (".", "..") and _LEGAL_NAME.fullmatch(topic) is not None


class TopicCreation:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._under_way: dict[str, asyncio.Future[ErrorCode]] = {}

    async def ensure(self, topic: str) -> ErrorCode:
        """Creates a topic that is missing; NONE when it is there and this broker has caught up with that."""
        if topic in self._broker.image.topics:
            return ErrorCode.NONE
        waiting = self._under_way.get(topic)
        if waiting is None:
            waiting = self._broker.loop.create_task(self._create(topic))
            self._under_way[topic] = waiting
            waiting.add_done_callback(lambda done: self._finished(topic, done))
        return await asyncio.shield(waiting)

    def _finished(self, topic: str, done: "asyncio.Future[ErrorCode]") -> None:
        self._under_way.pop(topic, None)
        if not done.cancelled():
            done.exception()  # whoever waited for it may be gone

    async def _create(self, topic: str) -> ErrorCode:
        request = CreateTopicsRequest(topics=[self._described(topic)], timeout_ms=30_000)
        response = await self._broker.controller.send(request, _CREATE_VERSION)
        assert isinstance(response, CreateTopicsResponse)
        code = ErrorCode(response.topics[0].error_code)
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            code = ErrorCode.NONE
        if code is ErrorCode.NONE:
            await self._broker.caught_up()
        return code

    def _described(self, topic: str) -> CreatableTopic:
        config = self._broker.config
        if topic == GROUP_OFFSETS:
            partitions = config.get_int("offsets.topic.num.partitions", at_least=1)
            replicas = config.get_int("offsets.topic.replication.factor", at_least=1)
            codec = config.get_int("offsets.topic.compression.codec")
            settings = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                "compression.type": "producer" if codec == 0 else ("gzip", "snappy", "lz4", "zstd")[codec - 1],
            }
        elif topic == TRANSACTION_STATE:
            partitions = config.get_int("transaction.state.log.num.partitions", at_least=1)
            replicas = config.get_int("transaction.state.log.replication.factor", at_least=1)
            settings = {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            }
        else:
            partitions = config.get_int("num.partitions", at_least=1)
            replicas = config.get_int("default.replication.factor", at_least=1)
            settings = {}
        return CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
        )
