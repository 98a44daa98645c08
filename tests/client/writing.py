"""Records for tests that need some to be there, without a producer of ours: one batch in one Produce request."""

from typing import Any

from mainstem.client.admin import AsyncAdmin
from mainstem.client.errors import raise_for
from mainstem.client.types import TopicPartition
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.raw import batch_of

_BY_NAME = 9
"""A version of Produce that names topics and that every broker speaks."""


async def append(admin: AsyncAdmin, tp: TopicPartition, *values: bytes, **options: Any) -> int:
    """Appends one batch, made with these options, and gives its first offset."""
    partition = PartitionProduceData(index=tp.partition, records=batch_of(*values, **options))
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=tp.topic, partition_data=[partition])]
    )

    async def attempt() -> int:
        leader = (await admin.describe_topics([tp.topic]))[tp.topic].partitions[tp.partition].leader
        connection = await admin.cluster.node(leader)
        answer = await connection.ask(request, ProduceResponse, version=_BY_NAME)
        found = answer.responses[0].partition_responses[0]
        raise_for(found.error_code, found.error_message)
        return found.base_offset

    return await admin.cluster.retrying(attempt, 10_000, "appending")
