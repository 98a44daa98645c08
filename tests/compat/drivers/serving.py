"""What the drivers of Python clients share: the loop of requests, and records as plain values."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Handlers = Mapping[str, Callable[[dict[str, Any]], Any]]


def serve(handlers: Handlers) -> None:
    """Answers each line of stdin, until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": handlers[request["op"]](request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def to_text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def plain(
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Iterable[tuple[str, bytes | str | None]] | None,
) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(one)] for name, one in headers or ()],
    }


class PolledMember:
    """A member of a group, polled by a thread of its own that also does what is asked between two polls.

    `poll` gives what arrived as plain records; `assignment` the partitions it owns.
    """

    def __init__(
        self,
        poll: Callable[[], list[dict[str, Any]]],
        assignment: Callable[[], list[int]],
        commit: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._poll, self._assignment, self._commit, self._close = poll, assignment, commit, close
        self._records: list[dict[str, Any]] = []
        self._owned: list[int] = []
        self._changes = 0
        self._commit_asked = threading.Event()
        self._commit_done = threading.Event()
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._records += self._poll()
            owned = sorted(self._assignment())
            self._changes += owned != self._owned
            self._owned = owned
            if self._commit_asked.is_set():
                self._commit_asked.clear()
                try:
                    self._commit()
                except Exception as error:
                    self._failure = error
                self._commit_done.set()
        self._close()

    def state(self) -> dict[str, Any]:
        return {"assignment": self._owned, "records": list(self._records), "rebalances": self._changes}

    def commit(self) -> None:
        self._failure = None
        self._commit_done.clear()
        self._commit_asked.set()
        if not self._commit_done.wait(30):
            raise TimeoutError("the commit took more than 30 seconds")
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        self._closing.set()
        self._thread.join(30)
