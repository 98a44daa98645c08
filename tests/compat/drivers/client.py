"""A Kafka client of another make, behind lines of JSON, so that one scenario is written once and runs with each.

A driver is a small program around one client: it is started with the bootstrap address, takes one request a line on
stdin and answers each with one line on stdout, `{"ok": result}` or `{"error": sentence}`. Drivers choose nothing that
the client would choose by itself: which versions of which requests it sends is the client's own affair.
"""

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CALL_TIMEOUT_S = 40.0


class ClientError(Exception):
    """What the client reported."""


@dataclass(frozen=True)
class Sent:
    """A record to produce. Without a partition the client picks one."""

    value: str | None
    key: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    partition: int | None = 0
    timestamp: int | None = None


@dataclass(frozen=True)
class Received:
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


@dataclass
class MemberState:
    """What a member of a group owns now, and everything it received so far."""

    assignment: list[int]
    records: list[Received]
    rebalances: int


@dataclass(frozen=True)
class Make:
    """One make of client: how its driver is started, and what it does not have, each with a word that says so."""

    name: str
    command: tuple[str, ...]
    lacks: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Client:
    """One running driver. What it prints on stderr is kept for the message of a failure."""

    def __init__(self, make: Make, bootstrap: str, log: Path) -> None:
        self.make = make
        self._log = log
        with open(log, "ab") as stderr:
            self._process = subprocess.Popen(
                [*make.command, bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **make.environment},
            )
        self._turn = threading.Lock()
        self._read = b""

    def call(self, op: str, **arguments: Any) -> Any:
        with self._turn:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._line(op))
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["ok"]

    def _line(self, op: str) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while b"\n" not in self._read:
            left_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._process.stdout], [], [], left_s)
            chunk = os.read(self._process.stdout.fileno(), 1 << 20) if readable else b""
            if not chunk:
                what = "ended" if readable else f"gave no answer in {CALL_TIMEOUT_S:.0f} s"
                raise AssertionError(f"{self.make.name} {what} at {op}: {self._log.read_text()[-3000:]}")
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return line

    def produce(
        self, topic: str, records: Sequence[Sent], codec: str = "none", acks: str = "all", idempotent: bool = True
    ) -> list[tuple[int, int]]:
        """Partition and offset of each record; the offset is -1 where acks=0 gives none."""
        plain = [
            {
                "key": one.key,
                "value": one.value,
                "headers": [list(header) for header in one.headers],
                "partition": one.partition,
                "timestamp": one.timestamp,
            }
            for one in records
        ]
        done = self.call("produce", topic=topic, records=plain, codec=codec, acks=acks, idempotent=idempotent)
        return [(partition, offset) for partition, offset in done]

    def fetch(
        self,
        topic: str,
        count: int,
        partition: int = 0,
        offset: int | None = None,
        timestamp: int | None = None,
        committed: bool = False,
    ) -> list[Received]:
        """At least `count` records from an offset, a time or the beginning; fewer if they don't come in 15 seconds."""
        found = self.call(
            "fetch",
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp=timestamp,
            count=count,
            committed=committed,
        )
        return [_received(one) for one in found]

    def join(
        self, member: str, group: str, topic: str, assignor: str = "range", instance: str | None = None
    ) -> "Member":
        self.call("join", member=member, group=group, topic=topic, assignor=assignor, instance=instance)
        return Member(self, member)

    def transact(self, name: str, transactional_id: str) -> "Transactional":
        """A producer of transactions, ready to begin one."""
        self.call("txn_init", producer=name, id=transactional_id)
        return Transactional(self, name)

    def close(self) -> None:
        """Ends the driver, which closes its members; kills it when it does not end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(15)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Member:
    """A member of a group, polled by its driver all the time."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def state(self) -> MemberState:
        found = self._client.call("state", member=self._name)
        records = [_received(one) for one in found["records"]]
        return MemberState(found["assignment"], records, found["rebalances"])

    def commit(self) -> None:
        self._client.call("commit", member=self._name)

    def leave(self) -> None:
        self._client.call("leave", member=self._name)


class Transactional:
    """A transactional producer. A transaction begins with the first record or offset after the last one's end."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def send(self, topic: str, *values: str, partition: int = 0) -> None:
        """Returns when all were delivered."""
        self._client.call("txn_send", producer=self._name, topic=topic, partition=partition, values=values)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._client.call("txn_offset", producer=self._name, group=group, topic=topic, offset=offset)

    def end(self, commit: bool = True) -> None:
        self._client.call("txn_end", producer=self._name, commit=commit)


def _received(one: Mapping[str, Any]) -> Received:
    headers = tuple((key, value) for key, value in one["headers"])
    return Received(one["partition"], one["offset"], one["timestamp"], one["key"], one["value"], headers)
