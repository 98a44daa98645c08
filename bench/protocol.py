"""What reading and writing messages costs: `python -m bench.protocol [--json]`.

A Metadata response of 1,000 partitions is encoded by the declared codec and by kio in the same run, on the same
content; a Produce request of one partition is parsed from its frame, header included.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from mainstem.build_info import build_name
from mainstem.protocol import fetch, produce
from mainstem.protocol.headers import read_request_header
from mainstem.protocol.messages import k00_produce, k03_metadata
from mainstem.protocol.rpc import decode_request, encode_request

TOPICS = 10
PARTITIONS_PER_TOPIC = 100
VERSION = 12


def median_us(function: Callable[[], object], repeats: int, inner: int = 1) -> float:
    """The median time of one call, in microseconds."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(inner):
            function()
        times.append((time.perf_counter_ns() - start) / inner / 1000)
    return statistics.median(times)


def metadata_response() -> k03_metadata.MetadataResponse:
    brokers = [k03_metadata.MetadataResponseBroker(node_id=i, host=f"broker-{i}", port=9092) for i in range(3)]
    topics = [
        k03_metadata.MetadataResponseTopic(
            error_code=0,
            name=f"topic-{t}",
            topic_id=bytes(15) + bytes([t + 1]),
            partitions=[
                k03_metadata.MetadataResponsePartition(
                    error_code=0,
                    partition_index=p,
                    leader_id=p % 3,
                    leader_epoch=5,
                    replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2],
                    offline_replicas=[],
                )
                for p in range(PARTITIONS_PER_TOPIC)
            ],
        )
        for t in range(TOPICS)
    ]
    return k03_metadata.MetadataResponse(brokers=brokers, cluster_id="bench", controller_id=1, topics=topics)


def kio_metadata_encode(content: bytes) -> Callable[[], bytes]:
    """The same response as kio's classes, read from our bytes, and a function that encodes it."""
    from kio.schema.metadata.v12.response import MetadataResponse
    from kio.serial import entity_reader, entity_writer

    read: Any = entity_reader(MetadataResponse)
    write: Any = entity_writer(MetadataResponse)
    response = read(content, 0)[0]

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, response)
        return buffer.getvalue()

    return encode


def produce_frame() -> bytes:
    partition = k00_produce.PartitionProduceData(index=0, records=bytes(1024))
    topic = k00_produce.TopicProduceData(name="orders", partition_data=[partition])
    request = k00_produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, 11, 42, "producer-1")[4:]


def parse_produce(frame: bytes) -> produce.ProduceRequest:
    header = read_request_header(frame)
    return produce.read_produce_request(frame, header.body_at, header.api_version)


def fetch_response() -> fetch.FetchResponse:
    topic = fetch.FetchTopicResponse("orders", bytes(16), [fetch.FetchPartitionResponse(0, 0, 1000, 4096)])
    return fetch.FetchResponse([topic])


def measure() -> dict[str, float]:
    response = metadata_response()
    content = response.encode(VERSION)
    kio_encode = kio_metadata_encode(content)
    assert kio_encode() == content
    frame = produce_frame()
    answer = fetch_response()
    results = {
        "metadata_encode_us": median_us(lambda: response.encode(VERSION), 60),
        "metadata_encode_kio_us": median_us(kio_encode, 15),
        "metadata_decode_us": median_us(lambda: k03_metadata.MetadataResponse.decode(content, VERSION), 60),
        "produce_parse_us": median_us(lambda: parse_produce(frame), 50, 500),
        "produce_parse_declared_us": median_us(lambda: decode_request(frame), 50, 200),
        "fetch_response_encode_us": median_us(lambda: fetch.encode_fetch_response(answer, 12, 1), 50, 500),
    }
    results["metadata_encode_to_kio"] = results["metadata_encode_us"] / results["metadata_encode_kio_us"]
    return results


ROWS = [
    ("Metadata response, 1,000 partitions: encode", "metadata_encode_us", "µs"),
    ("  the same by kio", "metadata_encode_kio_us", "µs"),
    ("  ours to kio's (at most 0.33)", "metadata_encode_to_kio", ""),
    ("Metadata response, 1,000 partitions: decode", "metadata_decode_us", "µs"),
    ("Produce request, one partition: parse (at most 15)", "produce_parse_us", "µs"),
    ("  the same by its declaration", "produce_parse_declared_us", "µs"),
    ("Fetch response, one partition: encode", "fetch_response_encode_us", "µs"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    results = measure()
    if options.json:
        print(json.dumps({"build": build_name(), **results}))
        return
    print(f"protocol, {build_name()} build")
    for label, key, unit in ROWS:
        print(f"{label:<52} {results[key]:>10.2f} {unit}")


if __name__ == "__main__":
    main()
