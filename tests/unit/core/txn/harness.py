"""Drives a TxnMachine as the runtime and its driver do, with a list for a log and numbers for time; no event loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from mainstem.core.coordinator.effects import ArmTimer, LogRecord, Order, Outcome, Refuse, Reply, TimerKey
from mainstem.core.txn.config import TxnConfig
from mainstem.core.txn.machine import (
    AbortTimedOut,
    Client,
    InitBy,
    NeedsProducerIdError,
    Producer,
    SendMarkers,
    TxnMachine,
)
from mainstem.core.txn.states import NO_ID, TV2, Place, Transaction
from mainstem.protocol.errors import ErrorCode, RemoteError

START_MS = 1_700_000_000_000
A: Place = ("a", 0)
B: Place = ("b", 1)


class Harness:
    """`fail_with` refuses writes; `holds_markers` leaves markers unwritten until `write_markers`."""

    def __init__(self, log: list[LogRecord] | None = None, *, server_version: int = TV2, **config: int) -> None:
        self.config = TxnConfig(**config)  # type: ignore[arg-type]
        self.machine = TxnMachine(self.config, server_version)
        self.log: list[LogRecord] = log or []
        self.now_ms = START_MS
        self.timers: dict[TimerKey, int] = {}
        self.fail_with: ErrorCode | None = None
        self.holds_markers = False
        self.pending: list[Transaction] = []
        self.markers: list[tuple[int, int, bool, tuple[Place, ...], int]] = []
        """Producer id, epoch, commit, partitions and version of all markers that were written."""
        self._ids = itertools.count(1000)
        for record in self.log:
            self.machine.replay(record.key, record.value)
        self.machine.keep()
        self.take(self.machine.loaded(self.now_ms))

    def take(self, outcome: Outcome) -> object:
        error = ErrorCode.NONE
        for record in outcome.records:
            self.machine.replay(record.key, record.value)
        if outcome.records and self.fail_with is not None:
            self.machine.revert()
            error = self.fail_with
        else:
            self.log += outcome.records
            self.machine.keep()
        answer: object = None
        for effect in outcome.effects:
            match effect:
                case Reply():
                    answer = error if error is not ErrorCode.NONE else effect.response
                case Refuse():
                    answer = error if error is not ErrorCode.NONE else effect.code
                case ArmTimer():
                    self.timers[effect.key] = self.now_ms + effect.delay_ms
                case Order():
                    self._carry_out(effect.what)
        if outcome.token is not None:
            self.take(self.machine.written(outcome.token, error, self.now_ms))
        return answer

    def _carry_out(self, what: object) -> None:
        match what:
            case SendMarkers(txn):
                self.pending.append(txn)
                if not self.holds_markers:
                    self.write_markers()
            case AbortTimedOut(txns):
                for txn in txns:
                    self._with_id(partial(self._abort, txn))

    def _abort(self, txn: Transaction, fresh_id: int) -> Outcome:
        return self.machine.abort_timed_out(None, txn, self.now_ms, fresh_id)

    def write_markers(self) -> None:
        pending, self.pending = self.pending, []
        for txn in pending:
            self.markers.append(
                (
                    txn.producer_id,
                    txn.producer_epoch,
                    txn.state.label == "PrepareCommit",
                    txn.partitions,
                    txn.client_version,
                )
            )
            self.take(self.machine.markers_written(txn, self.now_ms))

    def _with_id(self, step: Callable[[int], Outcome]) -> object:
        try:
            return self.take(step(NO_ID))
        except NeedsProducerIdError:
            return self.take(step(next(self._ids)))
        except RemoteError as error:
            return error.code

    def pass_time(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            due = min(((at, key) for key, at in self.timers.items()), default=None)
            if due is None or due[0] > until:
                break
            self.now_ms = due[0]
            del self.timers[due[1]]
            self.take(self.machine.timer_fired(due[1], self.now_ms))
        self.now_ms = until

    # Requests

    def init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        tid: str = "t",
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep: bool = False,
    ) -> object:
        by = InitBy(tid, timeout_ms, expected, two_phase, keep)
        return self._with_id(lambda fresh: self.machine.init_producer_id(None, by, self.now_ms, fresh))

    def given(self, expected: tuple[int, int] | None = None, **options: object) -> Producer:
        answer = self.init(expected, **options)  # type: ignore[arg-type]
        assert isinstance(answer, Producer), answer
        return answer

    def add(self, who: Producer, *places: Place, version: int = TV2, tid: str = "t") -> object:
        client = Client(tid, who.producer_id, who.epoch, version)
        return self._with_id(lambda fresh: self.machine.add_partitions(None, client, places or (A,), self.now_ms))

    def verify(self, who: Producer, *places: Place, tid: str = "t") -> object:
        client = Client(tid, who.producer_id, who.epoch)
        return self._with_id(lambda fresh: self.machine.verify_partitions(None, client, places))

    def end(self, who: Producer, commit: bool = True, *, version: int = TV2, tid: str = "t") -> object:
        client = Client(tid, who.producer_id, who.epoch, version)
        return self._with_id(lambda fresh: self.machine.end(None, client, commit, self.now_ms, fresh))

    @property
    def txn(self) -> Transaction:
        return self.machine.store.all["t"]

    @property
    def state(self) -> str:
        return self.txn.state.label

    def set(self, **changes: object) -> None:
        """Writes the id's record anew with something else in it."""
        from dataclasses import replace

        from mainstem.core.txn.records import log_record

        record = log_record(replace(self.txn, **changes), TV2)  # type: ignore[arg-type]
        self.log.append(record)
        self.machine.replay(record.key, record.value)
        self.machine.keep()

    def taken_over(self) -> Harness:
        """Another coordinator on the same log."""
        other = Harness(list(self.log), server_version=self.machine.server_version)
        assert other.machine.store.all == self.machine.store.all or other.markers
        return other
