"""The records of `__transaction_state`, as Kafka 4.3 writes them: one key for each transactional id."""

from __future__ import annotations

from typing import Final

from mainstem.core.coordinator.effects import LogRecord, UnknownRecordError
from mainstem.core.txn.states import EMPTY, NO_ID, Place, Transaction, TxnState
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.record_framing import TXN_RECORDS
from mainstem.protocol.messages.txn_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

FLEXIBLE_SINCE: Final = 1
"""The transaction version from which values are written with tagged fields."""
_VALUE_VERSIONS: Final = (0, 1)
_STATES: Final = {state.value: state for state in TxnState}


def log_record(txn: Transaction, server_version: int) -> LogRecord:
    """The record of a transactional id, in the format that the cluster's transaction version has."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in txn.partitions:
        by_topic.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None
        if txn.state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()],
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.start_ms,
    )
    version = 0
    # Who came back to a transaction is not forgotten because the cluster was downgraded since.
    if server_version >= FLEXIBLE_SINCE or txn.is_kept:
        version = 1
        value.previous_producer_id = txn.previous_producer_id
        value.next_producer_id = txn.next_producer_id
        value.next_producer_epoch = txn.next_producer_epoch
        value.client_transaction_version = txn.client_version
    return LogRecord(record_key(txn.transactional_id), TXN_RECORDS.encode_value(value, version))


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(record_key(transactional_id), None)


def record_key(transactional_id: str) -> bytes:
    return TXN_RECORDS.encode_key(TransactionLogKey(transactional_id=transactional_id))


def read_record(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """A transactional id and what its record says.

    UnknownRecordError for a key or a value of a later version, as in Kafka; RemoteError where it cannot be read.
    """
    if int.from_bytes(key[:2], "big", signed=True) not in TXN_RECORDS.keys:
        raise UnknownRecordError(f"a transaction's record of the type {key[:2].hex()}")
    if value is not None and len(value) > 1 and int.from_bytes(value[:2], "big", signed=True) not in _VALUE_VERSIONS:
        raise UnknownRecordError(f"a transaction's record of the version {value[:2].hex()}")
    decoded_key, decoded = TXN_RECORDS.decode(key, value)
    assert isinstance(decoded_key, TransactionLogKey)
    transactional_id = decoded_key.transactional_id
    if decoded is None:
        return transactional_id, None
    assert isinstance(decoded, TransactionLogValue)
    state = _STATES.get(decoded.transaction_status)
    if state is None:
        raise RemoteError(ErrorCode.CORRUPT_MESSAGE, f"a transaction in the state {decoded.transaction_status}")
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer_id=decoded.producer_id,
        producer_epoch=decoded.producer_epoch,
        timeout_ms=decoded.transaction_timeout_ms,
        state=state,
        partitions=() if state is EMPTY else _places(decoded.transaction_partitions),
        start_ms=decoded.transaction_start_timestamp_ms,
        updated_ms=decoded.transaction_last_update_timestamp_ms,
        previous_producer_id=decoded.previous_producer_id,
        next_producer_id=decoded.next_producer_id,
        next_producer_epoch=decoded.next_producer_epoch if decoded.next_producer_id != NO_ID else -1,
        client_version=decoded.client_transaction_version,
    )


def _places(topics: list[PartitionsSchema] | None) -> tuple[Place, ...]:
    return tuple((topic.topic, partition) for topic in topics or () for partition in topic.partition_ids)
