"""The bytes of `__transaction_state`, and that state is what its log says, however it was compacted."""

import random

from mainstem.core.coordinator.effects import LogRecord
from mainstem.core.txn.machine import Producer
from mainstem.core.txn.records import log_record, read_record, record_key
from mainstem.core.txn.states import PREPARED, TV1, TV2, Transaction, TxnState
from mainstem.core.txn.store import TxnStore
from mainstem.protocol.errors import ErrorCode
from tests.unit.core.txn.harness import A, B, Harness

OPEN = Transaction("t", 5, 3, 60_000, TxnState.ONGOING, (("a", 0), ("a", 2), ("b", 1)), 10, 20, 5, -1, -1, TV2)


def test_a_record_holds_all_that_is_known() -> None:
    for txn in (OPEN, Transaction("ü", 1, 0, 5, TxnState.EMPTY, (), -1, 7, 1), OPEN.kept_for(9, 0, 40, 30)):
        record = log_record(txn, TV2)
        assert read_record(record.key, record.value) == (txn.transactional_id, txn)
    assert read_record(record_key("t"), None) == ("t", None)


def test_version_zero_has_no_tagged_fields() -> None:
    record = log_record(OPEN, 0)
    assert record.value is not None
    assert record.value[:2] == b"\0\0"
    assert read_record(record.key, record.value)[1] == Transaction(
        "t", 5, 3, 60_000, TxnState.ONGOING, OPEN.partitions, 10, 20
    )


def test_bytes_are_those_that_kafka_writes() -> None:
    """An Empty id of producer 0 with a time-out of 60 s; `tests/compat/differential` compares them with Kafka's own."""
    txn = Transaction("x", 0, 0, 60_000, TxnState.EMPTY, (), -1, 0x18BCFE56800, 0)
    record = log_record(txn, TV2)
    assert record.key == bytes.fromhex("0000000178")
    assert record.value is not None
    assert record.value.hex() == (
        "0001" + "00" * 8 + "0000" + "0000ea60" + "00" + "00" + "0000018bcfe56800" + "ff" * 8 + "01" + "0008" + "00" * 8
    )


def compactions(log: list[LogRecord], rng: random.Random) -> list[LogRecord]:
    """One that may be: any record may go that a later one of its key supersedes."""
    last = {record.key: at for at, record in enumerate(log)}
    return [record for at, record in enumerate(log) if last[record.key] == at or rng.random() < 0.5]


def test_live_state_is_what_any_compaction_of_the_log_replays_to() -> None:
    """T10: random clients do random things; a coordinator that reads the log knows the same, and nothing is stuck."""
    for seed in range(150):
        rng = random.Random(seed)
        h = Harness(server_version=rng.choice((0, 1, 2)), expiration_ms=40_000, expiration_check_ms=7_000)
        known: dict[str, list[Producer]] = {}
        handed_out: dict[int, int] = {}
        for _ in range(60):
            tid = rng.choice(("t", "u"))
            who = rng.choice(known.get(tid, [Producer(1, 0)])[-3:])
            version = rng.choice((TV1, TV2)) if h.machine.server_version == TV2 else TV1
            h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS if rng.random() < 0.1 else None
            match rng.randrange(6):
                case 0:
                    expected = None if rng.random() < 0.5 else (who.producer_id, who.epoch)
                    answer = h.init(expected, tid=tid, timeout_ms=rng.choice((1_000, 60_000)))
                case 1 | 2:
                    answer = h.add(who, rng.choice((A, B)), version=version, tid=tid)
                case 3 | 4:
                    answer = h.end(who, rng.random() < 0.5, version=version, tid=tid)
                case _:
                    h.pass_time(rng.choice((100, 12_000)))
                    answer = None
            if isinstance(answer, Producer) and answer.producer_id >= 0:
                known.setdefault(tid, []).append(answer)
                assert answer.epoch >= handed_out.get(answer.producer_id, 0), "epochs never go back"
                handed_out[answer.producer_id] = answer.epoch
        h.fail_with = None
        h.pass_time(1_000)
        replayed = TxnStore()
        for record in compactions(h.log, rng):
            replayed.replay(record.key, record.value)
        assert replayed.all == h.machine.store.all
        assert replayed.ongoing.keys() == h.machine.store.ongoing.keys()
        assert all(txn.state not in PREPARED for txn in replayed.all.values())
