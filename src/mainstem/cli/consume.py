"""`mainstem consume`: records to the terminal, to a pipe, to JSON lines or to Parquet.

Where it begins and where it ends:
- Without a word about it: from now on, until Ctrl-C, as Kafka's console consumer.
- `--from-beginning`, `--from-time`, `--from-offset`, `--last`: from there to the end that the topic has now; `--follow`
  goes on.
- `--group`: what the group has not read yet, shared with its other members, and committed as it is printed.
- `--max` ends earlier, `--idle` when nothing came for so long.

On a terminal a record is a line with its place, time and key; in a pipe it is its value. `--format` says otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.cli.arguments import add_cluster
from mainstem.cli.consume_sinks import FORMATS, Sink, make_sink
from mainstem.cli.failures import DONE, NOT_FOUND, UserError
from mainstem.cli.output import Output, Progress
from mainstem.cli.values import count, duration_ms, key_value, not_negative, partitions, point_in_time, several

if TYPE_CHECKING:
    from mainstem.client.consumer_sync import Consumer
    from mainstem.client.types import TopicPartition

_POLL_MS: Final = 200.0
_COMMIT_EVERY_S: Final = 1.0
_LAST_WAIT_MS: Final = 2000.0


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    parser.epilog = "example: mainstem consume orders --from-time 5m --format '{partition}:{offset} {key} {value}'"
    parser.add_argument("topic", help="where from")
    where = parser.add_argument_group("where it begins and ends")
    start = where.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="everything that is there")
    start.add_argument("--from-time", type=point_in_time, metavar="TIME", help="from then on: 5m (ago), ISO 8601")
    start.add_argument("--from-offset", type=not_negative, metavar="N", help="from this offset of each partition")
    start.add_argument("--last", type=count, metavar="N", help="the last N of each partition")
    where.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    where.add_argument("-n", "--max", type=count, metavar="N", help="end after so many records")
    where.add_argument("--idle", type=duration_ms, metavar="TIME", help="end when nothing came for so long")
    where.add_argument("-p", "--partition", type=partitions, metavar="0,3", help="only these partitions")
    where.add_argument("-g", "--group", help="read as a member of this group, and commit")
    where.add_argument("--read-committed", action="store_true", help="nothing of transactions that were aborted")
    shape = parser.add_argument_group("what is written")
    shape.add_argument("--format", metavar="FORMAT", help=f"{', '.join(FORMATS)}, or a template: '{{key}}={{value}}'")
    shape.add_argument("--json", action="store_true", help="the same as --format json: an object a line")
    shape.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="to a file; .parquet and .jsonl say the format"
    )
    way = parser.add_argument_group("reading")
    way.add_argument(
        "-X",
        "--set",
        action="append",
        default=[],
        type=key_value,
        metavar="OPTION=VALUE",
        help="any option of a consumer by Kafka's name: fetch.max.bytes=1000000",
    )
    add_cluster(parser, with_json=False)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing at the end")
    parser.set_defaults(run=consume)


def consume(given: argparse.Namespace) -> int:
    from mainstem.cli.session import require_topics
    from mainstem.client.consumer_sync import Consumer

    if given.group is not None and given.partition is not None:
        raise UserError("--group shares out partitions itself; --partition cannot be given with it")
    if given.group is not None and (
        given.from_time is not None or given.from_offset is not None or given.last is not None
    ):
        raise UserError("a group begins where it left off; `mainstem groups reset` moves it")
    is_parquet = given.format == "parquet" or (given.output is not None and given.output.suffix in (".parquet", ".pq"))
    if given.group is not None and given.max is not None and is_parquet:
        raise UserError("Parquet is written in batches, so a group would commit more than --max; leave out one of them")
    out = Output(is_quiet=given.quiet, color=False if given.no_color else None)
    sink = make_sink(out, given)
    there = require_topics(given, [given.topic])[given.topic]
    began = time.monotonic()
    try:
        with Consumer(**_options(given)) as consumer:
            reading = _subscribe(consumer, given, sink) if given.group else _assign(consumer, given, there)
            sink.open()
            patience_ms: float = given.timeout
            try:
                with reading.at_work():
                    reading.run(sink, out)
            except KeyboardInterrupt:
                patience_ms = _LAST_WAIT_MS
                raise
            finally:
                sink.close()
                reading.commit(out)
                consumer.close(patience_ms)
    finally:
        sink.close()
    elapsed_s = max(time.monotonic() - began, 1e-9)
    if given.output is not None or not out.is_terminal or reading.count == 0:
        where = f" to {given.output}" if given.output is not None else ""
        out.note(f"{several(reading.count, 'record')} of {given.topic}{where} in {elapsed_s:.2f} s")
    return DONE


def _options(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "bootstrap_servers": given.bootstrap,
        "client_id": "mainstem-cli",
        "group_id": given.group,
        # Whoever names a group wants what it has not read, and that is everything for a new one.
        "auto_offset_reset": "earliest",
        "allow_auto_create_topics": False,
        # What was read and could not be written must not be passed over: it is committed once it is written.
        "enable_auto_commit": False,
        "isolation_level": "read_committed" if given.read_committed else "read_uncommitted",
        "default_api_timeout_ms": given.timeout,
        "max_poll_records": 1000,
        **{key.replace(".", "_"): value for key, value in given.set},
    }


class Reading:
    """One run over a topic. `ends` has where each partition ends, None to go on for ever.

    For a group an end only says when to stop: what lies beyond it came with the rest, will be committed with it, and is
    written, too. Partitions that other members have are theirs to read to the end.
    """

    def __init__(
        self, consumer: Consumer, ends: dict[TopicPartition, int] | None, total: int | None, given: argparse.Namespace
    ) -> None:
        self.count = 0
        self._consumer = consumer
        self._ends = ends
        self._total = total
        self._is_group = given.group is not None
        self._max: int | None = given.max
        self._idle_s: float | None = None if given.idle is None else given.idle / 1000
        self._written: dict[TopicPartition, int] | None = {}
        """How far each partition has been written; None when all that was given out is."""
        self._is_at_work = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While it is, whatever the consumer gave out is written when it is polled again."""
        self._is_at_work = True
        try:
            yield
        finally:
            self._is_at_work = False

    def run(self, sink: Sink, out: Output) -> None:
        self._written = written = {}
        last_s = committed_s = time.monotonic()
        total = self._total if self._max is None else min(self._max, self._total or self._max)
        with out.progress("reading", total) if sink.is_file else nullcontext(Progress()) as bar:
            while not self._is_over():
                limits = None if self._is_group else self._ends
                got = sink.take(self._consumer, self._wait_ms(last_s), self._left(), limits)
                if got.records:
                    self.count += got.written
                    bar.advance(got.written)
                    last_s = time.monotonic()
                elif self._idle_s is not None and time.monotonic() - last_s >= self._idle_s:
                    break
                written.update(got.positions)
                if sink.is_lasting and time.monotonic() - committed_s >= _COMMIT_EVERY_S:
                    self.commit_at_work()
                    committed_s = time.monotonic()
                self._forget_finished(got.positions, is_idle=not got.records)
        self._written = None

    def commit_at_work(self) -> None:
        """Commits what was given out, all of which is written by now. What is refused is committed the next time."""
        from mainstem.client.errors import KafkaError

        if self._is_group and self._is_at_work:
            with suppress(KafkaError):
                self._consumer.commit()

    def commit(self, out: Output) -> None:
        """Has the group go on after what was written, at the end, when all of that is where it belongs."""
        from mainstem.client.errors import KafkaError

        if not self._is_group:
            return
        try:
            if self._written is None:
                self._consumer.commit()
            else:
                # Interrupted, or a file is full: a broker that does not answer is not waited for.
                mine = set(self._consumer.assignment)
                written = {tp: at for tp, at in self._written.items() if tp in mine}
                self._consumer.commit(written, timeout_ms=_LAST_WAIT_MS)
        except KafkaError as error:
            out.note(f"not committed: {error}")

    def _left(self) -> int | None:
        return None if self._max is None else self._max - self.count

    def _wait_ms(self, last_s: float) -> float:
        if self._idle_s is None:
            return _POLL_MS
        return max(0.0, min(_POLL_MS, (self._idle_s - (time.monotonic() - last_s)) * 1000))

    def _is_over(self) -> bool:
        if self._max is not None and self.count >= self._max:
            return True
        if self._ends is None or not self._is_group:
            return self._ends is not None and not self._ends
        mine = self._consumer.assignment
        return bool(mine) and not any(tp in self._ends for tp in mine)

    def _forget_finished(self, positions: dict[TopicPartition, int], *, is_idle: bool) -> None:
        """Takes out partitions that are read to their end. Where the last offsets hold no record, positions tell."""
        if not self._ends:
            return
        for tp, position in positions.items():
            if position >= self._ends.get(tp, position + 1):
                del self._ends[tp]
        if is_idle:
            assigned = set(self._consumer.assignment)
            for tp in [tp for tp in self._ends if tp in assigned]:
                if self._consumer.position(tp) >= self._ends[tp]:
                    del self._ends[tp]


def _assign(consumer: Consumer, given: argparse.Namespace, there: list[int]) -> Reading:
    from mainstem.client.types import TopicPartition

    missing = sorted(set(given.partition or ()) - set(there))
    if missing:
        raise UserError(f"topic {given.topic} has no partition {missing[0]}", NOT_FOUND)
    chosen = [TopicPartition(given.topic, at) for at in there if given.partition is None or at in given.partition]
    first, ends = consumer.beginning_offsets(chosen), consumer.end_offsets(chosen)
    begin = _starts(consumer, given, chosen, first, ends)
    consumer.assign(chosen)
    for tp, offset in begin.items():
        consumer.seek(tp, offset)
    goes_on = given.follow or not _has_start(given)
    left = {tp: end for tp, end in ends.items() if begin[tp] < end}
    total = None if goes_on else sum(end - begin[tp] for tp, end in left.items())
    return Reading(consumer, None if goes_on else left, total, given)


def _starts(
    consumer: Consumer,
    given: argparse.Namespace,
    chosen: list[TopicPartition],
    first: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if given.from_beginning:
        return first
    if given.from_time is not None:
        found = consumer.offsets_for_times(dict.fromkeys(chosen, given.from_time))
        return {tp: at.offset if (at := found.get(tp)) is not None else ends[tp] for tp in chosen}
    if given.from_offset is not None:
        return {tp: min(max(given.from_offset, first[tp]), ends[tp]) for tp in chosen}
    if given.last is not None:
        return {tp: max(first[tp], ends[tp] - given.last) for tp in chosen}
    return ends


def _has_start(given: argparse.Namespace) -> bool:
    return given.from_beginning or any(each is not None for each in (given.from_time, given.from_offset, given.last))


def _subscribe(consumer: Consumer, given: argparse.Namespace, sink: Sink) -> Reading:
    """As a member of a group: to the end that its partitions have when it is given some."""
    from mainstem.client.listeners import RebalanceListener
    from mainstem.client.types import TopicPartition

    ends: dict[TopicPartition, int] | None = None
    if not given.follow:
        ends = consumer.end_offsets([TopicPartition(given.topic, at) for at in consumer.partitions_for(given.topic)])
    reading = Reading(consumer, ends, None, given)

    class Handover(RebalanceListener):
        """Whoever gets a partition next begins after what was written here."""

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            if sink.is_lasting:
                reading.commit_at_work()

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            pass

    consumer.subscribe([given.topic], listener=Handover())
    return reading
