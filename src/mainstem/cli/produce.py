"""`mainstem produce`: a record for each line of a file or of stdin.

How many records went where is said on stderr at the end; stdout has only what `--print` asks for. The exit code is 0
when every record was acknowledged, and that of the first failure otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mainstem.cli.arguments import add_cluster
from mainstem.cli.failures import DONE, NOT_FOUND, UserError
from mainstem.cli.output import Output
from mainstem.cli.values import duration_ms, key_value, not_negative, several

if TYPE_CHECKING:
    from mainstem.cli.record_text import NewRecord
    from mainstem.client.batches import SendFuture

_LOOK_EVERY: Final = 10_000
"""Records between two looks at what has been acknowledged, so that the futures of a large file are not all kept."""

_LAST_WAIT_MS: Final = 1000
"""How long Ctrl-C waits for what was sent before it."""


def declare(parser: argparse.ArgumentParser, command: str) -> None:
    parser.epilog = "example: seq 1000 | mainstem produce numbers --compression zstd"
    parser.add_argument("topic", help="where to")
    parser.add_argument("file", nargs="*", default=["-"], help="files with a record a line (default: stdin)")
    shape = parser.add_argument_group("lines")
    shape.add_argument(
        "-k", "--key-separator", metavar="TEXT", help="a line is a key, this, and a value; '\\t' is a tab"
    )
    shape.add_argument(
        "-H",
        "--headers",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="a header of every record; repeatable",
    )
    shape.add_argument("--json", action="store_true", help='a line is a JSON object with "key", "value", "headers" …')
    shape.add_argument("--null", metavar="TEXT", help="a value that is this text is no value (a tombstone)")
    way = parser.add_argument_group("sending")
    way.add_argument("-p", "--partition", type=not_negative, help="all to this partition (default: by key, or spread)")
    way.add_argument("-a", "--acks", default="all", choices=["all", "0", "1"], help="who must have it (default all)")
    way.add_argument("-z", "--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    way.add_argument("--linger", type=duration_ms, default=5, metavar="TIME", help="wait so long for a fuller batch")
    way.add_argument(
        "-X",
        "--set",
        action="append",
        default=[],
        type=key_value,
        metavar="OPTION=VALUE",
        help="any option of a producer by Kafka's name: batch.size=65536",
    )
    way.add_argument("--create", action="store_true", help="let the cluster create the topic where it is missing")
    way.add_argument("--print", action="store_true", help="print partition and offset of each record")
    add_cluster(parser, with_json=False)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing at the end")
    parser.set_defaults(run=produce)


def produce(given: argparse.Namespace) -> int:
    from mainstem.cli.session import require_topics
    from mainstem.client.sync_producer import Producer

    if not given.create:
        there = require_topics(given, [given.topic], "; --create lets the cluster create it")[given.topic]
        if given.partition is not None and given.partition not in there:
            raise UserError(f"topic {given.topic} has no partition {given.partition}", NOT_FOUND)
    out = Output(is_quiet=given.quiet, color=False if given.no_color else None)
    options: dict[str, Any] = {
        "bootstrap_servers": given.bootstrap,
        "client_id": "mainstem-cli",
        "acks": given.acks,
        "compression_type": given.compression,
        "linger_ms": given.linger,
        "max_block_ms": given.timeout,
        **{key.replace(".", "_"): value for key, value in given.set},
    }
    began = time.monotonic()
    is_watched = given.file != ["-"] or not sys.stdin.isatty()
    with Producer(**options) as producer:
        progress = out.progress(f"to {given.topic}", None) if is_watched and not given.print else nullcontext(None)
        with progress as bar:
            sent = Sent(given.print)
            try:
                for record in records(given):
                    sent.add(
                        producer.send(
                            given.topic, record.value, record.key, record.partition, record.timestamp_ms, record.headers
                        )
                    )
                    if bar is not None and sent.count % 1000 == 0:
                        bar.advance(1000)
                producer.flush()
                sent.settle()
            except KeyboardInterrupt:
                # What is under way may arrive; a broker that does not answer is not waited for.
                producer.close(_LAST_WAIT_MS)
                raise
    elapsed_s = max(time.monotonic() - began, 1e-9)
    rate = f"{sent.count / elapsed_s:,.0f} a second"
    out.note(f"{several(sent.count, 'record')} to {given.topic} in {elapsed_s:.2f} s ({rate})")
    return DONE


class Sent:
    """The records that were sent and not yet seen to be acknowledged."""

    def __init__(self, is_printed: bool) -> None:
        self.count = 0
        self._is_printed = is_printed
        self._pending: deque[SendFuture] = deque()

    def add(self, future: SendFuture) -> None:
        self.count += 1
        self._pending.append(future)
        if self.count % _LOOK_EVERY == 0:
            while self._pending and self._pending[0].done():
                self._take()

    def settle(self) -> None:
        while self._pending:
            self._take()

    def _take(self) -> None:
        """Raises what kept the oldest record from being written."""
        where = self._pending.popleft().result()
        if self._is_printed:
            print(f"{where.partition} {where.offset}")


def records(given: argparse.Namespace) -> Iterator[NewRecord]:
    """What the lines say. A line ends with a newline, which is not part of it; the last need not."""
    from mainstem.cli.record_text import NewRecord, from_json

    if given.json and given.key_separator is not None:
        raise UserError("--json and --key-separator exclude each other")
    separator = None if given.key_separator is None else given.key_separator.replace("\\t", "\t").encode()
    if separator == b"":
        raise UserError("--key-separator is empty")
    null = None if given.null is None else given.null.encode()
    headers = [(name, value.encode()) for name, value in given.headers]
    for number, line in enumerate(_lines(given.file), 1):
        if given.json:
            if line:
                found = from_json(line, number)
                partition = found.partition if given.partition is None else given.partition
                yield NewRecord(found.key, found.value, [*headers, *found.headers], partition, found.timestamp_ms)
            continue
        key, value = None, line
        if separator is not None:
            first, found_separator, rest = line.partition(separator)
            if not found_separator:
                raise UserError(f"line {number} has no {given.key_separator!r} between a key and a value")
            key, value = first, rest
        yield NewRecord(key, None if value == null else value, headers, given.partition)


def _lines(names: list[str]) -> Iterator[bytes]:
    for name in names:
        if name == "-":
            yield from _lines_of(sys.stdin.buffer)
        else:
            with open(name, "rb") as file:
                yield from _lines_of(file)


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n").removesuffix(b"\r")
