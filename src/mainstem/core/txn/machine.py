"""The coordinator of the transactional ids in one partition of `__transaction_state`.

Who may do what (Kafka's rules, in Kafka's order):
- While a transaction completes, its id answers CONCURRENT_TRANSACTIONS.
- A producer id that is not the transactional id's is INVALID_PRODUCER_ID_MAPPING, another epoch than the client's is
  PRODUCER_FENCED, and nothing lets a client choose an epoch (KAFKA-9600).
- InitProducerId of an id with an open transaction aborts that first and is to be tried again; so does a time-out,
  which raises the epoch (KAFKA-6119). Only a transaction of a two-phase commit has none, and only InitProducerId with
  `keep_prepared` leaves it open (KIP-939).
- EndTxn again is answered as the first time, once its transaction is complete: under version 1 by the same epoch,
  under version 2 by the epoch before, also where that was the last of its producer id (KIP-890).

A step that needs a fresh producer id and was given none raises `NeedsProducerIdError`; its driver gets one and asks
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from mainstem.core.coordinator.effects import ArmTimer, LogRecord, Outcome, Refuse, Ticket, TimerKey
from mainstem.core.txn.config import TxnConfig
from mainstem.core.txn.records import FLEXIBLE_SINCE, log_record, tombstone
from mainstem.core.txn.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    LABELS,
    LISTABLE,
    NO_EPOCH,
    NO_ID,
    NO_TIMEOUT,
    ONGOING,
    OVER,
    PREPARED,
    TRANSITIONS,
    TV1,
    TV2,
    Place,
    Transaction,
    is_exhausted,
)
from mainstem.core.txn.store import TxnStore
from mainstem.protocol.errors import ErrorCode, RemoteError

CHECK_TIMEOUTS: Final = "time-outs"
EXPIRE: Final = "expire"
COMPLETE: Final = "complete"
COMPLETE_AGAIN_MS: Final = 100
EXPIRE_MAX: Final = 1000
"""How many ids are forgotten at a time: after a long rest it may be all of them, and others have to be served."""
EXPIRE_MORE_MS: Final = 100


class NeedsProducerIdError(Exception):
    """The step needs a producer id that nobody has."""


class InitBy(NamedTuple):
    """Who wants to be the producer of a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None
    """The producer id and epoch that the client has (KIP-360); none if it has just begun."""
    two_phase: bool = False
    keep_prepared: bool = False


class Producer(NamedTuple):
    """The identity that a client is given, and that of the transaction it comes back to."""

    producer_id: int
    epoch: int
    ongoing_producer_id: int = NO_ID
    ongoing_epoch: int = NO_EPOCH


class Client(NamedTuple):
    """A client that has been given an identity, and the transaction version of its request."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int = TV1


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """An order: bring the end of this prepared transaction to all of its partitions, then call `markers_written`."""

    txn: Transaction


@dataclass(frozen=True, slots=True)
class AbortTimedOut:
    """An order: call `abort_timed_out` for each of these."""

    txns: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class _Completed:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The log tells of these, which are to be completed when it is committed."""

    prepared: tuple[Transaction, ...]


class TxnMachine:
    def __init__(self, config: TxnConfig, server_version: int = TV2) -> None:
        self.config = config
        self.server_version = server_version
        """The finalized `transaction.version` of the cluster."""
        self.store = TxnStore()

    # InitProducerId

    def init_producer_id(self, ticket: Ticket, by: InitBy, now_ms: int, fresh_id: int = NO_ID) -> Outcome:
        """Answers with a Producer."""
        check_init(by, self.config)
        timeout_ms = NO_TIMEOUT if by.two_phase else by.timeout_ms
        txn = self.store.get(by.transactional_id)
        if txn is None:
            first = Transaction(by.transactional_id, _needed(fresh_id), 0, timeout_ms, EMPTY)
            return self._give(ticket, first, first.producer_id, 0, timeout_ms, NO_EPOCH, now_ms)
        if txn.state in PREPARED:
            raise _completing(txn)
        if by.expected is not None and not _may_be_producer(txn, by.expected):
            raise _fenced(txn, by.expected[1])
        if txn.state is ONGOING:
            if by.keep_prepared:
                return self._keep(ticket, txn, by, timeout_ms, now_ms, fresh_id)
            out = self._abort(txn, now_ms, fresh_id)
            out.effects.append(Refuse(ticket, ErrorCode.CONCURRENT_TRANSACTIONS))
            return out
        return self._take_over(ticket, txn, by.expected, timeout_ms, now_ms, fresh_id)

    def _take_over(
        self,
        ticket: Ticket,
        txn: Transaction,
        expected: tuple[int, int] | None,
        timeout_ms: int,
        now_ms: int,
        fresh_id: int,
    ) -> Outcome:
        epoch = txn.producer_epoch
        named = epoch if expected is None else expected[1]
        last_epoch = NO_EPOCH if expected is None else named
        if named != epoch:
            if named != self._last_epoch(txn):
                raise _fenced(txn, named)
            return self._give(ticket, txn, txn.producer_id, epoch, timeout_ms, last_epoch, now_ms)
        if is_exhausted(epoch):
            return self._give(ticket, txn, _needed(fresh_id), 0, timeout_ms, last_epoch, now_ms)
        return self._give(ticket, txn, txn.producer_id, epoch + 1, timeout_ms, last_epoch, now_ms)

    def _last_epoch(self, txn: Transaction) -> int:
        return self.store.last_epoch(txn.transactional_id) if txn.state is EMPTY else txn.last_epoch

    def _give(
        self, ticket: Ticket, txn: Transaction, producer_id: int, epoch: int, timeout_ms: int, last: int, now_ms: int
    ) -> Outcome:
        self.store.expect_last_epoch(txn.transactional_id, last)
        given = txn.given(producer_id, epoch, timeout_ms, now_ms)
        out = Outcome()
        out.records.append(self._record(txn, given))
        return out.reply(ticket, Producer(producer_id, epoch))

    def _keep(
        self, ticket: Ticket, txn: Transaction, by: InitBy, timeout_ms: int, now_ms: int, fresh_id: int
    ) -> Outcome:
        """The transaction stays as it is; the client gets an identity that fences whoever had it before."""
        if by.expected is not None and by.expected != (txn.client_id, txn.client_epoch):
            raise _fenced(txn, by.expected[1])
        if self.server_version < FLEXIBLE_SINCE:
            raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, "two identities need transaction.version 1 or later")
        producer_id, epoch = txn.client_id, txn.client_epoch + 1
        if is_exhausted(txn.client_epoch):
            producer_id, epoch = _needed(fresh_id), 0
        out = Outcome()
        out.records.append(self._record(txn, txn.kept_for(producer_id, epoch, timeout_ms, now_ms)))
        return out.reply(ticket, Producer(producer_id, epoch, txn.producer_id, txn.producer_epoch))

    # Partitions

    def add_partitions(self, ticket: Ticket, client: Client, places: tuple[Place, ...], now_ms: int) -> Outcome:
        """Answers with NONE when they are part of the transaction, which begins with the first of them."""
        txn = self._known(client.transactional_id)
        if txn.state in PREPARED:
            # First of all: the client may already have the identity that it gets when this is complete (KAFKA-18575).
            raise _completing(txn)
        _check_client(txn, client)
        _check_grows(txn)
        out = Outcome()
        held = dict.fromkeys(txn.partitions)
        if txn.state is not ONGOING or any(place not in held for place in places):
            self._check_level(client)
            out.records.append(self._record(txn, txn.with_partitions(places, client.version, now_ms)))
        return out.reply(ticket, ErrorCode.NONE)

    def verify_partitions(self, ticket: Ticket, client: Client, places: Iterable[Place]) -> Outcome:
        """Answers, for each, NONE if it is part of the open transaction and TRANSACTION_ABORTABLE if not."""
        txn = self._known(client.transactional_id)
        _check_client(txn, client)
        if txn.state in PREPARED:
            raise _completing(txn)
        _check_grows(txn)
        held = dict.fromkeys(txn.partitions)
        return Outcome().reply(
            ticket, [ErrorCode.NONE if place in held else ErrorCode.TRANSACTION_ABORTABLE for place in places]
        )

    # The end

    def end(self, ticket: Ticket, client: Client, commit: bool, now_ms: int, fresh_id: int = NO_ID) -> Outcome:
        """Answers with the Producer that the client is from now on."""
        txn = self._known(client.transactional_id)
        if client.version >= TV2:
            return self._end_v2(ticket, txn, client, commit, now_ms, fresh_id)
        _check_client(txn, client)
        if txn.state in PREPARED:
            raise _completing(txn)
        if txn.state is ONGOING:
            out = self._prepare(txn, txn.prepared(commit, TV1, NO_ID, now_ms))
            return out.reply(ticket, Producer(NO_ID, NO_EPOCH))
        if txn.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return Outcome().reply(ticket, Producer(NO_ID, NO_EPOCH))
        raise _cannot_end(txn, commit)

    def _end_v2(
        self, ticket: Ticket, txn: Transaction, client: Client, commit: bool, now_ms: int, fresh_id: int
    ) -> Outcome:
        if txn.state in PREPARED:
            raise _completing(txn)
        is_over = txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        is_retry = is_over and self._is_retry(txn, client)
        if not is_retry:
            _check_client(txn, client)
        if txn.state is ONGOING or (not commit and not is_retry):
            # An abort of what was never begun raises the epoch all the same: what the client sent may still come.
            self._check_level(client)
            fresh_id = _needed(fresh_id) if is_exhausted(txn.client_epoch) else NO_ID
            after = txn.prepared(commit, TV2, fresh_id, now_ms)
            return self._prepare(txn, after).reply(ticket, Producer(*after.identity_after()))
        if is_retry and txn.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return Outcome().reply(ticket, Producer(txn.producer_id, txn.producer_epoch))
        raise _cannot_end(txn, commit)

    def _is_retry(self, txn: Transaction, client: Client) -> bool:
        """Whether the client ends what is over, under the identity that the end took from it."""
        if client.producer_id == txn.producer_id:
            return client.epoch + 1 == txn.producer_epoch
        return (
            client.producer_id == txn.previous_producer_id and client.epoch == EPOCH_MAX - 1 and txn.producer_epoch == 0
        )

    def abort_timed_out(self, ticket: Ticket, timed_out: Transaction, now_ms: int, fresh_id: int = NO_ID) -> Outcome:
        """Aborts a transaction that an `AbortTimedOut` named, unless it has moved on; answers with whether."""
        txn = self.store.get(timed_out.transactional_id)
        if txn is None or txn.state is not ONGOING or txn != timed_out:
            return Outcome().reply(ticket, False)
        out = self._abort(txn, now_ms, fresh_id)
        out.note("aborted a transaction: its time was up", transactional_id=txn.transactional_id)
        return out.reply(ticket, True)

    def _abort(self, txn: Transaction, now_ms: int, fresh_id: int) -> Outcome:
        """Ends a transaction against its client's will, and fences the client."""
        if self.server_version < TV2:
            return self._prepare(txn, txn.fenced().prepared(False, TV1, NO_ID, now_ms))
        fresh_id = _needed(fresh_id) if is_exhausted(txn.client_epoch) else NO_ID
        return self._prepare(txn, txn.prepared(False, self.server_version, fresh_id, now_ms))

    def _prepare(self, txn: Transaction, after: Transaction) -> Outcome:
        out = Outcome()
        out.records.append(self._record(txn, after))
        out.token = _Prepared(after.transactional_id)
        out.patient = True  # markers may leave only when this is committed for certain, and must leave then
        return out

    def markers_written(self, txn: Transaction, now_ms: int) -> Outcome:
        """The end of `txn` is in all of its partitions."""
        out = Outcome()
        if self._being_completed(txn.transactional_id) == txn:
            out.records.append(self._record(txn, txn.completed(now_ms)))
            out.token = _Completed(txn.transactional_id)
            out.patient = True
        return out

    def _being_completed(self, transactional_id: str) -> Transaction | None:
        """The prepared transaction of an id as its record has it, which may know less than whoever wrote it did."""
        txn = self.store.get(transactional_id)
        return txn if txn is not None and txn.state in PREPARED else None

    # Administration

    def describe(self, ticket: Ticket, transactional_id: str) -> Outcome:
        """Answers with a Transaction."""
        if not transactional_id:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        txn = self.store.get(transactional_id)
        if txn is None:
            raise RemoteError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {transactional_id!r}")
        return Outcome().reply(ticket, txn)

    def list_transactions(
        self,
        ticket: Ticket,
        states: Iterable[str],
        producer_ids: Iterable[int],
        duration_ms: int,
        is_named: Callable[[str], object] | None,
        now_ms: int,
    ) -> Outcome:
        """Answers with the Transactions in those states and of those producers, of any where none is given, whose
        transactional id is one that was asked for."""
        wanted_states = {LABELS.get(state) for state in states}
        wanted_ids = frozenset(producer_ids)
        return Outcome().reply(
            ticket,
            [
                txn
                for txn in self.store.all.values()
                if (not wanted_states or txn.state in wanted_states)
                and (not wanted_ids or txn.producer_id in wanted_ids)
                and (duration_ms < 0 or now_ms - txn.start_ms > duration_ms)
                and (is_named is None or is_named(txn.transactional_id))
            ],
        )

    # The runtime's side

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_ID) -> None:
        self.store.replay(key, value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """No transaction has records in this log."""

    def keep(self) -> None:
        self.store.keep()

    def revert(self) -> None:
        self.store.revert()

    def loaded(self, now_ms: int) -> Outcome:
        """Goes on with what was decided and not completed, once that is committed: a decision that is only in this log
        may still be lost. Open transactions go on by themselves."""
        out = Outcome()
        out.token = _Loaded(tuple(txn for txn in self.store.all.values() if txn.state in PREPARED))
        out.patient = True
        out.effects.append(ArmTimer((CHECK_TIMEOUTS,), self.config.timeout_check_ms))
        out.effects.append(ArmTimer((EXPIRE,), self.config.expiration_check_ms))
        return out

    def written(self, token: object, error: ErrorCode, now_ms: int) -> Outcome:
        out = Outcome()
        match token:
            case _Loaded(prepared):
                if error is ErrorCode.NONE:
                    for each in prepared:
                        out.order(SendMarkers(each))
            case _Prepared(transactional_id):
                txn = self._being_completed(transactional_id)
                if error is ErrorCode.NONE and txn is not None:
                    out.order(SendMarkers(txn))
            case _Completed(transactional_id):
                if error is not ErrorCode.NONE and self._being_completed(transactional_id) is not None:
                    # All markers are there; only the note of it is missing (KAFKA-9749).
                    out.effects.append(ArmTimer((COMPLETE, transactional_id), COMPLETE_AGAIN_MS))
        return out

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        match key[0]:
            case "time-outs":
                return self._check_timeouts(now_ms)
            case "expire":
                return self._expire(now_ms)
            case _:
                txn = self._being_completed(key[1])
                return Outcome() if txn is None else self.markers_written(txn, now_ms)

    def _check_timeouts(self, now_ms: int) -> Outcome:
        out = Outcome()
        late = [self.store.all[transactional_id] for transactional_id in self.store.ongoing]
        late = [txn for txn in late if txn.is_late(now_ms)]
        if late:
            out.order(AbortTimedOut(tuple(late)))
        out.effects.append(ArmTimer((CHECK_TIMEOUTS,), self.config.timeout_check_ms))
        return out

    def _expire(self, now_ms: int) -> Outcome:
        """Forgets the ids that nobody has used for long: nothing of them is under way."""
        out = Outcome()
        out.atomic = False
        until_ms = now_ms - self.config.expiration_ms
        expired = (txn for txn in self.store.all.values() if txn.state in OVER and txn.updated_ms <= until_ms)
        out.records = [tombstone(txn.transactional_id) for txn in islice(expired, EXPIRE_MAX)]
        if out.records:
            out.note("expired transactional ids", ids=len(out.records))
        more = len(out.records) == EXPIRE_MAX
        out.effects.append(ArmTimer((EXPIRE,), EXPIRE_MORE_MS if more else self.config.expiration_check_ms))
        return out

    def parked(self) -> list[Ticket]:
        return []

    # Small things

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        txn = self.store.get(transactional_id)
        if txn is None:
            raise RemoteError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"no transactional id {transactional_id!r}")
        return txn

    def _check_level(self, client: Client) -> None:
        """Level 0's records have no place for what version 2 must know of a transaction."""
        if client.version >= TV2 and self.server_version < FLEXIBLE_SINCE:
            raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"transaction.version is {self.server_version}")

    def _record(self, before: Transaction, after: Transaction) -> LogRecord:
        assert after.state in TRANSITIONS[before.state], f"{after} cannot follow {before}"
        return log_record(after, self.server_version)


def check_init(by: InitBy, config: TxnConfig) -> None:
    """What is wrong with InitProducerId whoever coordinates its transactional id: RemoteError."""
    if not by.transactional_id:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if by.two_phase and not config.two_phase_commit:
        raise RemoteError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transaction.two.phase.commit.enable is false"
        )
    if by.keep_prepared and not config.two_phase_commit:
        raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, "transaction.two.phase.commit.enable is false")
    if not by.two_phase and not 0 < by.timeout_ms <= config.timeout_max_ms:
        raise RemoteError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a transaction lasts up to {config.timeout_max_ms} ms"
        )


def unknown_states(states: Iterable[str]) -> list[str]:
    return [state for state in dict.fromkeys(states) if state not in LISTABLE]


def _needed(fresh_id: int) -> int:
    if fresh_id == NO_ID:
        raise NeedsProducerIdError
    return fresh_id


def _may_be_producer(txn: Transaction, expected: tuple[int, int]) -> bool:
    """Whether the client had the current producer id, or the one before it, up to its last epoch."""
    producer_id, epoch = expected
    return producer_id == txn.client_id or (producer_id == txn.previous_producer_id and is_exhausted(epoch))


def _check_client(txn: Transaction, client: Client) -> None:
    if client.producer_id != txn.client_id:
        raise RemoteError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{txn.transactional_id!r} has producer id {txn.client_id}, not {client.producer_id}",
        )
    if client.epoch != txn.client_epoch:
        raise _fenced(txn, client.epoch)


def _check_grows(txn: Transaction) -> None:
    if txn.is_kept:
        raise RemoteError(ErrorCode.INVALID_TXN_STATE, f"{txn.transactional_id!r} is prepared: it can only end")


def _fenced(txn: Transaction, epoch: int) -> RemoteError:
    return RemoteError(
        ErrorCode.PRODUCER_FENCED, f"{txn.transactional_id!r} is at epoch {txn.client_epoch}, the request at {epoch}"
    )


def _completing(txn: Transaction) -> RemoteError:
    return RemoteError(ErrorCode.CONCURRENT_TRANSACTIONS, f"a transaction of {txn.transactional_id!r} is completing")


def _cannot_end(txn: Transaction, commit: bool) -> RemoteError:
    return RemoteError(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id!r} is {txn.state.label} and cannot be {'committed' if commit else 'aborted'}",
    )
