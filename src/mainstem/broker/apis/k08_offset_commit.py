"""OffsetCommit (key 8), versions 2–10: a group's positions.

v2 to v4 may ask for a retention of their own, v6 has leader epochs, v7 instance ids; v10 names topics by their ids.
An unknown topic or partition is an error of its own, what is wrong with the group an error of all others.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.core.group.offsets import CommitBy, NewOffset
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 8
MIN_VERSION = 2
MAX_VERSION = 10

_TOPIC_IDS_SINCE = 10


class _Answers:
    """The response: first what was refused here, then what the group says, each topic once.

    As in Kafka, a topic that a request names twice stays twice when nothing was refused.
    """

    def __init__(self) -> None:
        self.topics: dict[tuple[str, bytes, int], OffsetCommitResponseTopic] = {}
        self.refused = False

    def add(self, name: str, topic_id: bytes, entry: int, partition: int, code: ErrorCode) -> None:
        key = (name, topic_id, 0 if self.refused else entry)
        topic = self.topics.get(key)
        if topic is None:
            topic = self.topics[key] = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(OffsetCommitResponsePartition(partition_index=partition, error_code=code))


async def handle(broker: "Broker", context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    answers = _Answers()
    entries: list[int] = []
    offsets: list[NewOffset] = []
    for entry, topic in enumerate(request.topics):
        _sort(broker, topic, by_id, answers, offsets)
        entries += [entry] * (len(offsets) - len(entries))
    if offsets:
        by = CommitBy(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            context.api_version,
            request.retention_time_ms,
        )
        try:
            codes = await broker.groups.commit_offsets(by, offsets)
        except RemoteError as error:
            codes = [error.code] * len(offsets)
        for new, entry, code in zip(offsets, entries, codes, strict=True):
            answers.add(new.topic, new.topic_id, entry, new.partition, code)
    return OffsetCommitResponse(topics=list(answers.topics.values()))


def _sort(
    broker: "Broker", topic: OffsetCommitRequestTopic, by_id: bool, answers: _Answers, offsets: list[NewOffset]
) -> None:
    """Puts the partitions of a topic among the offsets to commit, or among the answers."""
    image = broker.image
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    for partition in topic.partitions:
        index = partition.partition_index
        if known is not None and index in known.partitions:
            offsets.append(
                NewOffset(
                    known.name,
                    known.topic_id,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            )
            continue
        answers.refused = True
        if known is not None:
            answers.add(known.name, known.topic_id, 0, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.add(topic.name, topic.topic_id, 0, index, code)
