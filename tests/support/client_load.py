"""Records written by hand for tests of consumers: one request at a time, so that a test knows what is where."""

import asyncio
import time
from collections.abc import Sequence

from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import error_for
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_BY_NAME_MAX = 12
PATIENCE_S = 20.0


class Writer:
    """Writes batches to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._host, _, port = bootstrap.rpartition(":")
        self._port = int(port)

    def send(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        timestamp: int = 1_000_000,
        codec: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Appends one batch; the offset of its first record."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, offset = asyncio.run(self.send_once(topic, partition, values, timestamp, codec, headers))
            if not code:
                return offset
            error = error_for(code, topic=topic, partition=partition)
            # A topic that was just made may not have a leader yet.
            if not error.retriable or time.monotonic() > deadline:
                raise error
            time.sleep(0.05)

    def try_send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """Appends one batch; the error code."""
        return asyncio.run(self.send_once(topic, partition, values, 1_000_000, 0, ()))[0]

    async def send_once(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        timestamp: int,
        codec: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> tuple[int, int]:
        builder = BatchBuilder(codec=codec)
        for number, value in enumerate(values):
            builder.append(timestamp + number, b"key-%d" % number, value, headers)
        data = PartitionProduceData(index=partition, records=builder.build())
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        connection = await BrokerConnection.open(self._host, self._port, "writer")
        try:
            version = connection.version_for(0, PRODUCE_BY_NAME_MAX)
            answer = await connection.ask(request, ProduceResponse, version=version)
        finally:
            connection.close()
        told = answer.responses[0].partition_responses[0]
        return told.error_code, told.base_offset
