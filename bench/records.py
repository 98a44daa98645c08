"""How fast batches are parsed, walked, decoded and encoded, on one core: `python -m bench.records [--json]`.

Records are 8 bytes of key and 100 of value. A run takes 10,000 of them, about 1 MB, in one batch: what a fetch returns
of a partition, and what Spark hands over in one Arrow batch. Each figure is the best of many runs, because the machine
has other things to do.
"""

import argparse
import json
import time
from collections.abc import Callable

import pyarrow as pa

from mainstem.build_info import build_name
from mainstem.protocol.batch import HEADER_BYTES, BatchView, iterate_batches
from mainstem.protocol.builder import BatchBuilder, recompress
from mainstem.protocol.columns import decode_columns, encode_columns
from mainstem.protocol.compression import CODEC_NAMES
from mainstem.protocol.records import iterate_records, walk_records

RECORDS = 10_000
BATCH_BYTES = 2_000_000


def best(run: Callable[[], object], seconds: float) -> float:
    """The shortest of as many runs as fit."""
    shortest = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def stamped(batches: list[bytes]) -> bytes:
    """The batches at consecutive offsets, as a broker stores them."""
    parts = []
    offset = 0
    for data in batches:
        batch = BatchView(data, 0)
        parts += [batch.stamp(offset, 0), data[16:]]
        offset += batch.record_count
    return b"".join(parts)


def parse_headers(data: bytes) -> int:
    total = 0
    for batch in iterate_batches(data, 0, len(data)):
        total += batch.base_offset + batch.record_count + batch.attributes + batch.producer_id + batch.max_timestamp
    return total


def iterate(batch: BatchView) -> None:
    for _ in iterate_records(batch):
        pass


def build(count: int) -> bytes:
    builder = BatchBuilder()
    append = builder.append
    for _ in range(count):
        append(1_700_000_000_000, b"12345678", b"v" * 100)
    return builder.build()


def measure(seconds: float) -> dict[str, float]:
    """Nanoseconds per record, or per batch where the name says so."""
    keys = pa.array([b"%08d" % n for n in range(RECORDS)], pa.binary())
    values = pa.array([(b"value %08d " % n) * 6 + b"1234" for n in range(RECORDS)], pa.binary())
    times = pa.array([1_700_000_000_000 + n // 10 for n in range(RECORDS)], pa.timestamp("ms"))
    batches = encode_columns(keys, values, times, max_batch_bytes=BATCH_BYTES)
    data = stamped(batches)
    small = stamped([build(1)] * 1000)
    first = BatchView(data, 0)
    figures: dict[str, float] = {}

    def per(name: str, count: float, run: Callable[[], object]) -> None:
        figures[name] = best(run, seconds) / count * 1e9

    per("parse a batch header, per batch", 1000, lambda: parse_headers(small))
    per("check CRC and header of 1 MB, per batch", 1, lambda: first.check(first.end))
    per(
        "walk, structural check",
        float(first.record_count),
        lambda: walk_records(first.buffer, first.start + HEADER_BYTES, first.end, first.record_count),
    )
    per("iterate as Record objects", float(first.record_count), lambda: iterate(first))
    per("build 16 KB with BatchBuilder.append", 140, lambda: build(140))
    per("decode to columns", RECORDS, lambda: decode_columns(data))
    decoded = decode_columns(data)
    per("decode to Arrow: key, value, offset, timestamp", RECORDS, lambda: to_arrow(data))
    per("decode to Arrow: value only", RECORDS, lambda: decode_columns(data).to_arrow(["value"]))
    per("Arrow from decoded columns: all but headers", RECORDS, lambda: decoded.to_arrow(ALL, "topic", 0))
    per(
        "encode from Arrow: key, value, timestamp",
        RECORDS,
        lambda: encode_columns(keys, values, times, max_batch_bytes=BATCH_BYTES),
    )
    per("encode from Arrow: value only", RECORDS, lambda: encode_columns(None, values, max_batch_bytes=BATCH_BYTES))
    for codec in range(1, 5):
        packed = stamped([recompress(BatchView(item, 0), codec) for item in batches])
        name = CODEC_NAMES[codec]
        per(f"decode to Arrow, {name}", RECORDS, lambda packed=packed: to_arrow(packed))  # type: ignore[misc]
        per(
            f"encode from Arrow, {name}",
            RECORDS,
            lambda codec=codec: encode_columns(keys, values, times, max_batch_bytes=BATCH_BYTES, codec=codec),  # type: ignore[misc]
        )
    return figures


def measure_row() -> dict[str, float]:
    """What the table tells, in millions of records a second."""
    pa.set_cpu_count(1)
    figures = measure(0.5)
    return {
        "decode_arrow": 1e3 / figures["decode to Arrow: key, value, offset, timestamp"],
        "encode_arrow": 1e3 / figures["encode from Arrow: key, value, timestamp"],
        "walk": 1e3 / figures["walk, structural check"],
    }


ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def to_arrow(data: bytes) -> object:
    return decode_columns(data).to_arrow(["key", "value", "offset", "timestamp"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to try each figure")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    figures = measure(arguments.seconds)
    if arguments.json:
        print(json.dumps({"build": build_name(), "ns": {name: round(ns, 1) for name, ns in figures.items()}}))
        return
    print(f"{build_name()} build; 8 B keys, 100 B values\n")
    for name, ns in figures.items():
        print(f"{name:50} {ns:12,.1f} ns {1e3 / ns:10,.2f} M/s")


if __name__ == "__main__":
    main()
