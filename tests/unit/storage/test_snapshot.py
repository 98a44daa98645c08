"""Producer snapshots: Kafka's bytes, and refused where they cannot be trusted."""

import pytest

from mainstem.core.log.producers import ProducerStates
from mainstem.storage.snapshot import decode_snapshot, encode_snapshot


def states_of_two() -> ProducerStates:
    states = ProducerStates()
    states.apply_data(7, 2, 9, 100, 104, 5000, True)
    states.apply_marker(8, 1, 3, False, 105, 6000)
    return states


def test_no_producers_are_ten_bytes() -> None:
    assert encode_snapshot(ProducerStates()).hex() == "0001" + "48674bc7" + "00000000"


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    data = encode_snapshot(states_of_two())
    assert len(data) == 10 + 2 * 46
    first, second = decode_snapshot(data)
    assert (first.producer_id, first.epoch, first.last_sequence, first.last_offset) == (7, 2, 9, 104)
    assert (first.last_offset_delta, first.last_timestamp, first.txn_first_offset) == (4, 5000, 100)
    assert first.older_unread
    assert (second.producer_id, second.last_sequence, second.last_offset, second.coordinator_epoch) == (8, -1, -1, 3)
    assert second.batches == []
    assert not second.older_unread


@pytest.mark.parametrize("at", [0, 1, 3, 8, 40])
def test_a_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_snapshot(states_of_two()))
    data[at] ^= 1
    with pytest.raises(ValueError, match=r"snapshot|producers"):
        decode_snapshot(bytes(data))


def test_a_torn_snapshot_is_noticed() -> None:
    data = encode_snapshot(states_of_two())
    for size in (0, 9, 50, len(data) - 1):
        with pytest.raises(ValueError, match=r"snapshot|producers"):
            decode_snapshot(data[:size])
