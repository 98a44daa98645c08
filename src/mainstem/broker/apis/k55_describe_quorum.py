"""DescribeQuorum (key 55), versions 0–2: the controller tells the state of the metadata quorum (KIP-595).

v1 tells when each replica last fetched and was caught up (KIP-836), v2 directory ids and endpoints (KIP-853). There is
one partition to ask for; whoever asks for another, too, gets an error for all.
"""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.forwarding import forward
from mainstem.core.controller.names import METADATA_TOPIC
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from mainstem.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 55
MIN_VERSION = 0
MAX_VERSION = 2

_DIRECTORIES_FROM = 2


async def handle(broker: "Broker", context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    answer = await forward(broker, context, request, DescribeQuorumResponse)
    if isinstance(answer, RemoteError):
        return DescribeQuorumResponse(error_code=answer.code, error_message=answer.message, topics=[])
    if context.api_version < _DIRECTORIES_FROM:
        _forget_directories(answer)
    return answer


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=f"only {METADATA_TOPIC}-0 has a quorum",
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[],
                        observers=[],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _forget_directories(answer: DescribeQuorumResponse) -> None:
    answer.nodes = []
    for topic in answer.topics:
        for partition in topic.partitions:
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_directory_id = ZERO_UUID
