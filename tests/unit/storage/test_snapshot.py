"""Producer snapshots: Kafka's bytes, and refused where they cannot be trusted."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mainstem.core.log.producers import ProducerStates
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.snapshot import SnapshotFile, decode_snapshot, encode_snapshot
from tests.support.logs import NOW_MS, make_directory, new_disk

PATH = "/data/00000000000000000106.snapshot"


def states_of_two() -> ProducerStates:
    states = ProducerStates()
    states.apply_data(7, 2, 9, 100, 104, 5000, True)
    states.apply_marker(8, 1, 3, False, 105, 6000)
    return states


def encoded(states: ProducerStates) -> bytes:
    return b"".join(encode_snapshot(states.capture()))


def test_no_producers_are_ten_bytes() -> None:
    assert encoded(ProducerStates()).hex() == "0001" + "48674bc7" + "00000000"


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    data = encoded(states_of_two())
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
    data = bytearray(encoded(states_of_two()))
    data[at] ^= 1
    with pytest.raises(ValueError, match=r"snapshot|producers"):
        decode_snapshot(bytes(data))


def test_a_torn_snapshot_is_noticed() -> None:
    data = encoded(states_of_two())
    for size in (0, 9, 50, len(data) - 1):
        with pytest.raises(ValueError, match=r"snapshot|producers"):
            decode_snapshot(data[:size])


def test_a_snapshot_of_many_is_written_in_pieces_and_reads_as_one() -> None:
    states = ProducerStates()
    for producer_id in range(50_000):
        states.apply_data(producer_id, 0, 0, producer_id, producer_id, NOW_MS, False)
    pieces = encode_snapshot(states.capture())
    assert max(len(piece) for piece in pieces) < 1_200_000
    assert len(pieces) > 1
    assert [each.last_offset for each in decode_snapshot(b"".join(pieces))] == list(range(50_000))


def test_of_several_jobs_the_first_writes_a_snapshot() -> None:
    disk = new_disk()
    make_directory(disk, "/data")
    file = SnapshotFile(disk, PATH, states_of_two().capture())
    assert not file.is_written
    file.make_durable()
    assert file.is_written
    assert disk.unsynced()  # its name
    done: list[str] = []
    disk.on_operation = lambda operation, path, position, size: done.append(operation)
    file.make_durable()
    file.write()
    assert [operation for operation in done if "write" in operation or "truncate" in operation] == []
    assert disk.peek(PATH) == encoded(states_of_two())


def test_where_the_first_job_could_not_write_a_snapshot_the_others_do_not_try() -> None:
    """D5."""
    disk = new_disk()
    file = SnapshotFile(disk, "/nowhere/at-all.snapshot", states_of_two().capture())
    with pytest.raises(OSError, match="nowhere") as first:
        file.make_durable()
    make_directory(disk, "/nowhere")
    with pytest.raises(OSError, match="nowhere") as second:
        file.make_durable()
    assert second.value is first.value
    assert not disk.exists("/nowhere/at-all.snapshot")


def test_where_the_first_job_could_not_sync_a_snapshot_the_others_do_not_believe_the_next_sync() -> None:
    """D5: it would succeed with nothing done."""
    disk = new_disk()
    make_directory(disk, "/data")
    file = SnapshotFile(disk, PATH, states_of_two().capture())
    disk.faults = [Fault(Effect.FAIL_SYNC_AND_DROP, "sync")]
    for _ in range(2):
        with pytest.raises(OSError, match=r"data"):
            file.make_durable()


def test_a_snapshot_that_is_dropped_is_not_written_any_more() -> None:
    disk = new_disk()
    make_directory(disk, "/data")
    file = SnapshotFile(disk, PATH, states_of_two().capture())
    file.drop()
    file.make_durable()
    assert not disk.exists(PATH)


def test_a_snapshot_that_is_dropped_while_a_thread_makes_it_is_not_written() -> None:
    """Whoever drops it waits for a moment, not until it is made."""
    disk = new_disk()
    make_directory(disk, "/data")
    states = ProducerStates()
    for producer_id in range(20_000):
        states.apply_data(producer_id, 0, 0, 0, 0, NOW_MS, False)
    file = SnapshotFile(disk, PATH, states.capture())
    begun, dropping = threading.Event(), threading.Event()

    def breathe() -> None:
        begun.set()
        assert dropping.wait(10)
        while not file.is_dropped:
            time.sleep(0.001)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(file.make_durable, breathe)
        assert begun.wait(10)
        dropping.set()
        file.drop()
        assert not disk.exists(PATH)
        writing.result(10)
    assert not disk.exists(PATH)
