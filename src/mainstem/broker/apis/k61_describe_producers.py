"""DescribeProducers (key 61), version 0: the producers that a partition remembers (KIP-664)."""

from typing import TYPE_CHECKING

from mainstem.broker.context import RequestContext
from mainstem.broker.partition import Partition
from mainstem.broker.topic_creation import is_legal_name
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


def handle(broker: "Broker", context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(broker, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(broker: "Broker", topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    try:
        if not is_legal_name(topic):
            raise RemoteError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{topic}' cannot be a topic's name")
        answer.active_producers = _producers(broker.partitions.find(topic, index))
    except RemoteError as error:
        answer.error_code = error.code
        if topic not in broker.image.topics:
            answer.error_message = error.message
    return answer


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.txn_first_offset,
        )
        for producer in partition.log.producers.states.all()
    ]
