"""`mainstem perf`: how fast a cluster takes and gives records, with percentiles.

Without a topic one is made for the measurement and deleted afterwards. Each verb prints what it did, its throughput,
and its latencies; the figures are those of this client on this machine, as everybody who measures with it gets them.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from mainstem.cli.arguments import Verbs
from mainstem.cli.failures import DONE, UserError
from mainstem.cli.output import Output
from mainstem.cli.values import count, in_words, key_value, positive, size

if TYPE_CHECKING:
    from mainstem.client.batches import SendFuture
    from mainstem.client.sync_admin import Admin

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_SAMPLES_MAX: Final = 20_000
"""Latencies that are noted; of more records every nth is."""
_FILL_BYTES: Final = 1 << 20
_POLL_MS: Final = 1000.0
_GIVE_UP_S: Final = 30.0
_LEADER_LOOK_S: Final = 0.02


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    verbs = Verbs(parser)

    write = verbs.add(
        "produce", "send records as fast as they are taken", produce, example="mainstem perf produce --records 1m"
    )
    _add_common(write, records="1m")
    _add_producer(write)
    write.add_argument("--rate", type=count, metavar="N", help="at most so many records a second (default: no limit)")

    read = verbs.add(
        "consume", "read a topic from its beginning", consume, example="mainstem perf consume orders --arrow"
    )
    _add_common(read, records="1m")
    _add_producer(read)
    read.add_argument("--arrow", action="store_true", help="as Arrow batches instead of records")

    both = verbs.add("latency", "send one record at a time and wait until it is read again", latency)
    _add_common(both, records="1000")
    _add_producer(both)


def _add_common(parser: argparse.ArgumentParser, records: str) -> None:
    parser.add_argument("topic", nargs="?", help="which (default: one that is made and deleted again)")
    parser.add_argument("-n", "--records", type=count, default=count(records), help=f"how many (default {records})")
    parser.add_argument("-s", "--size", type=size, default=100, metavar="BYTES", help="of each value (default 100)")
    parser.add_argument("--partitions", type=positive, default=1, help="of the topic that is made (default 1)")


def _add_producer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--acks", default="all", choices=["all", "0", "1"])
    parser.add_argument("-z", "--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument(
        "-X",
        "--set",
        action="append",
        default=[],
        type=key_value,
        metavar="OPTION=VALUE",
        help="any option of the client",
    )


def produce(given: argparse.Namespace) -> int:
    from mainstem.cli.session import output_for

    out = output_for(given)
    with _topic(given) as topic:
        elapsed_s, latencies = _send(given, topic, out, rate=given.rate)
    _report(
        out, given, "produce", topic, given.records, given.records * given.size, elapsed_s, latencies, "acknowledged"
    )
    return DONE


def consume(given: argparse.Namespace) -> int:
    from mainstem.cli.session import output_for, require_topics
    from mainstem.client.consumer_sync import Consumer
    from mainstem.client.types import TopicPartition

    out = output_for(given)
    with _topic(given) as topic:
        if given.topic is None:
            _send(given, topic, out, what="filling the topic")
        there = require_topics(given, [topic])[topic]
        options = {"bootstrap_servers": given.bootstrap, "auto_offset_reset": "earliest", "max_poll_records": 5000}
        with Consumer(**options, **_extra(given)) as consumer:
            partitions = [TopicPartition(topic, at) for at in there]
            first, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            offsets = sum(ends[tp] - first[tp] for tp in partitions)
            if offsets == 0:
                raise UserError(f"topic {topic} is empty; leave it out and one is made and filled")
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            wanted = min(given.records, offsets)
            with out.progress("reading", wanted) as bar:
                read, read_bytes, elapsed_s = _read(consumer, wanted, bar, with_arrow=given.arrow)
    _report(out, given, "consume", topic, read, read_bytes, elapsed_s, [], "")
    return DONE


def latency(given: argparse.Namespace) -> int:
    from mainstem.cli.session import output_for, require_topics
    from mainstem.client.consumer_sync import Consumer
    from mainstem.client.sync_producer import Producer
    from mainstem.client.types import TopicPartition

    out = output_for(given)
    latencies: list[float] = []
    with _topic(given) as topic:
        there = require_topics(given, [topic])[topic]
        with (
            Producer(bootstrap_servers=given.bootstrap, linger_ms=0, **_producer_options(given)) as producer,
            Consumer(bootstrap_servers=given.bootstrap, fetch_min_bytes=1) as consumer,
        ):
            partitions = [TopicPartition(topic, at) for at in there]
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            for tp, end in ends.items():
                consumer.seek(tp, end)
            began = time.perf_counter()
            with out.progress("there and back", given.records) as bar:
                for number in range(given.records):
                    value = number.to_bytes(8, "big").ljust(given.size, b"x")
                    sent = time.perf_counter()
                    producer.send(topic, value)
                    _wait_for(consumer, value)
                    latencies.append((time.perf_counter() - sent) * 1000)
                    bar.advance()
            elapsed_s = time.perf_counter() - began
    _report(out, given, "latency", topic, given.records, given.records * given.size, elapsed_s, latencies, "read again")
    return DONE


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """By nearest rank: the smallest value that at least that share of all is at or below."""
    ordered = sorted(values)
    found = {f"p{100 * each:g}": ordered[max(0, math.ceil(each * len(ordered)) - 1)] for each in QUANTILES}
    return {"min": ordered[0], **found, "max": ordered[-1], "mean": sum(ordered) / len(ordered)}


@contextlib.contextmanager
def _topic(given: argparse.Namespace) -> Iterator[str]:
    """The topic to measure with: the one that was named, or one that is there for as long as it takes."""
    from mainstem.cli.session import require_topics
    from mainstem.client.admin_types import NewTopic
    from mainstem.client.sync_admin import Admin

    if given.topic is not None:
        require_topics(given, [given.topic])
        yield given.topic
        return
    name = f"mainstem-perf-{random.SystemRandom().randrange(1 << 32):08x}"
    require_topics(given, [])
    with Admin(bootstrap_servers=given.bootstrap) as admin:
        admin.create_topics([NewTopic(name, given.partitions)])
        try:
            while not _is_led(admin, name):
                time.sleep(_LEADER_LOOK_S)
            yield name
        finally:
            admin.delete_topics([name])


def _is_led(admin: Admin, topic: str) -> bool:
    """Brokers of Kafka learn of a new topic a moment after it was created."""
    from mainstem.client.errors import UnknownTopicOrPartitionError

    try:
        found = admin.describe_topics([topic])[topic]
    except UnknownTopicOrPartitionError:
        return False
    return all(each.leader >= 0 for each in found.partitions)


def _extra(given: argparse.Namespace) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in given.set}


def _producer_options(given: argparse.Namespace) -> dict[str, Any]:
    extra = {} if given.verb == "consume" else _extra(given)
    return {"acks": given.acks, "compression_type": given.compression, **extra}


def _send(
    given: argparse.Namespace, topic: str, out: Output, *, rate: int | None = None, what: str = "sending"
) -> tuple[float, list[float]]:
    """The seconds until all were acknowledged, and the milliseconds that each of a sample took."""
    from mainstem.client.sync_producer import Producer

    every = max(1, given.records // _SAMPLES_MAX)
    latencies: list[float] = []
    failures: list[Exception] = []

    def noted(sent: float) -> Any:
        def settle(future: SendFuture) -> None:
            error = future.exception(0)
            if error is None:
                latencies.append((time.perf_counter() - sent) * 1000)
            else:
                failures.append(error)

        return settle

    values = _values(given.size)
    with Producer(bootstrap_servers=given.bootstrap, **_producer_options(given)) as producer:
        producer.partitions_for(topic)
        began = time.perf_counter()
        with out.progress(what, given.records) as bar:
            last: SendFuture | None = None
            for number in range(given.records):
                # From before the call, which waits where the buffer is full: that is latency, too.
                sent = time.perf_counter()
                last = producer.send(topic, values[number % len(values)])
                if number % every == 0:
                    last.add_done_callback(noted(sent))
                if number % 1000 == 999:
                    bar.advance(1000)
                if rate is not None and number % max(1, rate // 100) == 0:
                    # Sleeping only when ahead by more than a timer's grain keeps the rate and the batches.
                    ahead_s = number / rate - (time.perf_counter() - began)
                    if ahead_s > 0.001:
                        time.sleep(ahead_s)
            producer.flush()
        elapsed_s = time.perf_counter() - began
    if failures:
        raise failures[0]
    return elapsed_s, latencies


def _values(size: int) -> list[bytes]:
    """Some different values that compress as little as random letters do."""
    rng = random.Random(1)
    letters = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=max(size, min(_FILL_BYTES, size * 64))))
    return [letters[at : at + size] for at in range(0, len(letters) - size + 1, size or 1)] or [b""]


def _read(consumer: Any, wanted: int, bar: Any, *, with_arrow: bool) -> tuple[int, int, float]:
    """Records and bytes that were read, and the seconds from the first poll to the last."""
    read = read_bytes = 0
    began = last = time.perf_counter()
    while read < wanted:
        if with_arrow:
            batches = consumer.fetch_arrow(_POLL_MS)
            got = sum(batch.num_rows for batch in batches)
            read_bytes += sum(_text_bytes(batch[name]) for batch in batches for name in ("key", "value"))
        else:
            records = consumer.poll(_POLL_MS)
            got = len(records)
            read_bytes += sum(len(each.value or b"") + len(each.key or b"") for each in records)
        read += got
        bar.advance(got)
        now = time.perf_counter()
        if got:
            last = now
        elif now - last > _GIVE_UP_S:
            raise UserError(f"nothing came for {_GIVE_UP_S:g} s after {read:,} records", 3)
    return read, read_bytes, max(last - began, 1e-9)


def _text_bytes(column: Any) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(column)).as_py() or 0


def _wait_for(consumer: Any, value: bytes) -> None:
    limit = time.perf_counter() + _GIVE_UP_S
    while time.perf_counter() < limit:
        if any(record.value == value for record in consumer.poll(_POLL_MS)):
            return
    raise UserError(f"a record was not read again within {_GIVE_UP_S:g} s", 3)


def _report(
    out: Output,
    given: argparse.Namespace,
    verb: str,
    topic: str,
    records: int,
    total_bytes: int,
    elapsed_s: float,
    latencies: list[float],
    until: str,
) -> None:
    found = {name: round(value, 3) for name, value in percentiles(latencies).items()} if latencies else {}
    if out.is_json:
        out.document(
            {
                "verb": verb,
                "topic": topic,
                "records": records,
                "bytes": total_bytes,
                "seconds": round(elapsed_s, 6),
                "records_per_second": round(records / elapsed_s, 1),
                "bytes_per_second": round(total_bytes / elapsed_s, 1),
                "latency_ms": found,
            }
        )
        return
    pairs = [
        ("records", f"{records:,} of {topic}" if given.topic else f"{records:,}"),
        ("bytes", in_words(total_bytes)),
        ("time", f"{elapsed_s:.2f} s"),
        ("throughput", f"{records / elapsed_s:,.0f} records/s, {in_words(total_bytes / elapsed_s)}/s"),
    ]
    if verb == "latency":
        pairs.pop()
    out.fields(pairs, f"perf {verb}")
    if found:
        out.line()
        out.line(f"latency in ms until {until}", "bold")
        out.fields((name, f"{value:,.2f}") for name, value in found.items())
