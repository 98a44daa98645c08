"""What a coordinator's machine asks for: records to write, answers to send, timers to set, lines to log.

An `Outcome` is one step. Its records are written together (unless it says they need not be), its replies leave when
those records, and all that the step could see, are committed (G8). Timers are set at once. A `token` comes back
through `written` with the result of the write; a machine that must wait for its own record continues there, and one
that wrote none waits for all that it could see. One that is `patient` comes back only when it is certain whether the
records are committed, however long that takes.

Records of a transaction (`part_of`) are written in a batch of their own, which carries the producer's id and epoch.

A ticket stands for someone waiting for an answer; the machine only hands it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mainstem.protocol.errors import ErrorCode

Ticket = object
TimerKey = tuple[str, ...]
"""What a timer is for and whom it concerns: ("heartbeat", group, member)."""


class LogRecord(NamedTuple):
    """A record of a coordinator's log; without a value it takes its key back."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: Ticket
    response: object


@dataclass(frozen=True, slots=True)
class Refuse:
    """A reply that says only what went wrong; the API makes the answer of it."""

    ticket: Ticket
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Fire `key` after `delay_ms`; takes the place of a timer with the same key."""

    key: TimerKey
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: TimerKey


@dataclass(frozen=True, slots=True)
class Note:
    """A log line for a person: what happened to which group, and why."""

    message: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Order:
    """Something for the driver of this coordinator to carry out; what it is, machine and driver agree on."""

    what: object


Effect = Reply | Refuse | ArmTimer | CancelTimer | Note | Order


class TransactionPart(NamedTuple):
    """The transaction that records belong to, and what lets them in: see `core/log/verification`."""

    producer_id: int
    producer_epoch: int
    guard: int


class UnknownRecordError(Exception):
    """A record of a type that only a later version knows; a reader leaves it out."""


class Outcome:
    """One step of a machine."""

    __slots__ = ("atomic", "effects", "part_of", "patient", "records", "token")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.effects: list[Effect] = []
        self.token: object | None = None
        self.atomic = True
        """Whether the records must be in one batch; false for tombstones that need nothing of one another."""
        self.patient = False
        """Whether `token` waits past the time-out of the write for what really became of it."""
        self.part_of: TransactionPart | None = None

    def reply(self, ticket: Ticket, response: object) -> Outcome:
        self.effects.append(Reply(ticket, response))
        return self

    def note(self, message: str, **fields: object) -> None:
        self.effects.append(Note(message, fields))

    def order(self, what: object) -> Outcome:
        self.effects.append(Order(what))
        return self


class CoordinatorMachine(Protocol):
    """What the runtime asks of a machine. `keep` and `revert` end what `replay` did since the one before."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Takes one record. `producer_id` is -1 unless the record is part of a transaction.

        UnknownRecordError for a type of a later version, RemoteError for one that cannot be read.
        """

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Takes the end of a transaction."""

    def keep(self) -> None:
        """What was replayed is in the log."""

    def revert(self) -> None:
        """What was replayed could not be written: takes it back."""

    def loaded(self, now_ms: int) -> Outcome:
        """Everything in the log was replayed: begin to serve."""

    def written(self, token: object, error: ErrorCode, now_ms: int) -> Outcome:
        """The records of the outcome with `token` are committed, or could not be."""

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome: ...

    def parked(self) -> list[Ticket]:
        """Everyone who still waits for an answer, when the machine stops serving."""
