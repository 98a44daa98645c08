"""The quorum of one: nothing is committed or answered before it is durable."""

import pytest

from mainstem.core.raft.election import ElectionState
from mainstem.core.raft.quorum import (
    Committed,
    PersistElection,
    Quorum,
    VoterSet,
    WriteBatch,
    one_voter,
)
from mainstem.protocol.batch import BatchView
from mainstem.protocol.control import ControlType, parse_control_key
from mainstem.protocol.messages.control import LeaderChangeMessage, VotersRecord
from mainstem.protocol.records import iterate_records

VOTERS = one_voter(1, bytes(range(16)), [("CONTROLLER", "localhost", 9093)])


def quorum(epoch: int = 0, log_end: int = 0, last_epoch: int = 0, in_log: bool = False) -> Quorum:
    voters = VoterSet(1, VOTERS, in_log)
    return Quorum(1, ElectionState(epoch=epoch), voters, log_end=log_end, last_epoch=last_epoch)


def led(machine: Quorum) -> WriteBatch:
    [persist] = machine.start()
    assert isinstance(persist, PersistElection)
    [write] = machine.election_persisted(persist.state, 1000)
    assert isinstance(write, WriteBatch)
    return write


def control_types(write: WriteBatch) -> list[int]:
    return [parse_control_key(record.key) for record in iterate_records(BatchView(write.data, 0))]


@pytest.mark.parametrize(("epoch", "last_epoch", "expected"), [(0, 0, 1), (4, 2, 5), (2, 6, 7)])
def test_every_start_is_an_epoch_after_all_that_were(epoch: int, last_epoch: int, expected: int) -> None:
    machine = quorum(epoch=epoch, log_end=10, last_epoch=last_epoch)
    assert machine.start() == [PersistElection(ElectionState(leader_id=1, epoch=expected))]
    assert not machine.is_leader


def test_the_first_batch_of_an_epoch_says_who_leads() -> None:
    write = led(quorum(log_end=7, in_log=True))
    batch = BatchView(write.data, 0)
    assert (batch.base_offset, batch.leader_epoch, batch.is_control) == (7, 1, True)
    assert control_types(write) == [ControlType.LEADER_CHANGE]
    [record] = iterate_records(batch)
    change = LeaderChangeMessage.decode(record.value or b"", 0)
    assert change.leader_id == 1
    assert [voter.voter_id for voter in change.voters] == [1]


def test_the_voters_go_into_the_log_the_first_time() -> None:
    write = led(quorum())
    assert control_types(write) == [ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert VotersRecord.decode(list(iterate_records(BatchView(write.data, 0)))[2].value or b"", 0) == VOTERS


def test_a_static_quorum_keeps_its_voters_out_of_the_log() -> None:
    machine = Quorum(1, ElectionState(), VoterSet(0, VOTERS, False), log_end=0, last_epoch=0)
    assert control_types(led(machine)) == [ControlType.LEADER_CHANGE]


def test_no_high_watermark_before_a_record_of_the_own_epoch_is_durable() -> None:
    machine = quorum(log_end=7, in_log=True)
    machine.start()
    assert machine.durable(1, 7) == []
    machine.election_persisted(machine.election, 0)
    assert machine.durable(1, 7) == []
    assert machine.high_watermark == -1
    assert machine.durable(1, 8) == [Committed(8, ())]


def test_an_answer_comes_back_only_with_the_commit_of_its_batch() -> None:
    machine = quorum()
    led(machine)
    assert machine.durable(1, 3) == [Committed(3, ())]
    [first] = machine.append([b"a"], 0, "first")
    [second] = machine.append([b"b", b"c"], 0, "second")
    assert isinstance(first, WriteBatch)
    assert isinstance(second, WriteBatch)
    assert (first.base_offset, first.end_offset, second.base_offset, second.end_offset) == (3, 4, 4, 6)
    assert machine.wait_for_log_end("reader") == []
    assert machine.durable(1, 4) == [Committed(4, ("first",))]
    assert machine.durable(1, 4) == []
    assert machine.durable(1, 6) == [Committed(6, ("second", "reader"))]
    assert machine.wait_for_log_end("late") == [Committed(6, ("late",))]


def test_nobody_leads_alone_who_is_not_the_only_voter() -> None:
    two = VotersRecord(version=0, voters=VOTERS.voters + one_voter(2, bytes(16), []).voters)
    for node_id, voters in ((1, two), (2, VOTERS)):
        with pytest.raises(ValueError, match="cannot lead the metadata quorum alone"):
            Quorum(node_id, ElectionState(), VoterSet(1, voters, True), log_end=0, last_epoch=0)


def test_an_epoch_has_one_leader_and_epochs_only_rise() -> None:
    state = ElectionState(leader_id=1, epoch=4)
    assert state.may_be_followed_by(ElectionState(leader_id=2, epoch=5))
    assert not state.may_be_followed_by(ElectionState(leader_id=2, epoch=4))
    assert not state.may_be_followed_by(ElectionState(leader_id=1, epoch=3))
    voted = ElectionState(epoch=4, voted_id=1)
    assert voted.may_be_followed_by(ElectionState(leader_id=2, epoch=4))
    assert not voted.may_be_followed_by(ElectionState(epoch=4, voted_id=2))
