"""OffsetDelete (key 47), version 0: takes back offsets of a group, but not of topics it subscribes to (KIP-496).

A partition that does not exist is an error of its own; what is wrong with the group is the answer's error, alone.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 47
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(broker: "Broker", context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    answers: dict[str, OffsetDeleteResponseTopic] = {}

    def answer(topic: str, partition: int, code: ErrorCode) -> None:
        if topic not in answers:
            answers[topic] = OffsetDeleteResponseTopic(name=topic, partitions=[])
        answers[topic].partitions.append(OffsetDeleteResponsePartition(partition_index=partition, error_code=code))

    known: list[tuple[str, int]] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            if broker.image.partition(topic.name, wanted.partition_index) is None:
                answer(topic.name, wanted.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append((topic.name, wanted.partition_index))
    codes = await broker.groups.delete_offsets(request.group_id, known)
    for (name, partition), code in zip(known, codes, strict=True):
        answer(name, partition, code)
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=list(answers.values()))
