"""Reads what is in a partition with plain fetches: an opinion of its own on what a producer wrote."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from mainstem.client.connection import BrokerConnection
from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from mainstem.protocol.records import Record, iterate_records

FETCH_BY_NAME_MAX = 12


def eventually(look: Callable[[], object], wanted: object, timeout_s: float = 20.0) -> None:
    """Looks until it is so: a cluster tells its brokers a moment after it answered, and so do coordinators."""
    deadline = time.monotonic() + timeout_s
    found = look()
    while found != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
        found = look()
    assert found == wanted


async def fetch_batches(
    bootstrap: str, topic: str, partition: int = 0, *, read_committed: bool = False
) -> list[BatchView]:
    """Every batch up to the high watermark; or up to the last stable offset, without those of aborted transactions."""
    host, _, port = bootstrap.rpartition(":")
    connection = await BrokerConnection.open(host, int(port), "reader")
    batches: list[BatchView] = []
    aborted: dict[int, list[int]] = defaultdict(list)
    offset = 0
    try:
        while True:
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=50 << 20,
                isolation_level=1 if read_committed else 0,
                session_id=0,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=50 << 20)
                        ],
                    )
                ],
                forgotten_topics_data=[],
            )
            answer = await connection.ask(request, FetchResponse, version=FETCH_BY_NAME_MAX)
            found = answer.responses[0].partitions[0]
            assert found.error_code == 0, found
            for each in found.aborted_transactions or ():
                aborted[each.producer_id].append(each.first_offset)
            end = found.last_stable_offset if read_committed else found.high_watermark
            data = found.records or b""
            for batch in iterate_batches(data, 0, len(data)):
                offset = batch.next_offset
                batches.append(batch)
            if offset >= end:
                break
    finally:
        connection.close()
    return _committed(batches, aborted) if read_committed else batches


def _committed(batches: list[BatchView], aborted: dict[int, list[int]]) -> list[BatchView]:
    """Without the batches of transactions that were aborted: from their first offset to their marker."""
    kept, inside = [], set()
    for batch in batches:
        starts = aborted.get(batch.producer_id, [])
        if batch.is_control:
            inside.discard(batch.producer_id)
        elif batch.is_transactional and any(start <= batch.base_offset for start in starts):
            if batch.base_offset in starts:
                inside.add(batch.producer_id)
            if batch.producer_id in inside:
                continue
        kept.append(batch)
    return kept


def read_records(bootstrap: str, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[Record]:
    """Every record of a partition, in order."""
    batches = asyncio.run(fetch_batches(bootstrap, topic, partition, read_committed=read_committed))
    return [record for batch in batches if not batch.is_control for record in iterate_records(batch)]


def read_values(bootstrap: str, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[bytes | None]:
    return [each.value for each in read_records(bootstrap, topic, partition, read_committed=read_committed)]
