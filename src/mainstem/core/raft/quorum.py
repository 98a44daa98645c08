"""The metadata quorum: a machine that is told what happened and says what to do.

    start -> PersistElection -> election_persisted -> WriteBatch (LeaderChange) -> durable -> Committed
                                            append -> WriteBatch               -> durable -> Committed

Rules:
- A start is a new epoch, and the epoch is durable before a batch of it is written (R1, R2).
- The first batch of an epoch is the leader's LeaderChange record; nothing is committed in an epoch before that batch
  is, so what an earlier epoch left behind counts only then (R7).
- A batch is committed when a majority of the voters has it in durable bytes (R5). `append` takes an acknowledgement
  together with the batch it waits for, and gives it back in `Committed` and nowhere else: an answer cannot leave
  before its records are safe.
- The voters are those of the newest VotersRecord (KIP-853); a node that is not one of them never leads.

Only one voter is served so far: votes, followers and truncation are not here. The high watermark is already computed
over the ends of all voters, and effects name what is to be done, not how, so that they can be added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.core.raft.election import ElectionState
from mainstem.protocol.builder import BatchBuilder
from mainstem.protocol.control import ControlType, build_control_batch
from mainstem.protocol.messages.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    VotersRecord,
    VotersVoter,
)

NO_HIGH_WATERMARK: Final = -1
KRAFT_VERSION: Final = 1
"""The newest `kraft.version`: 1 has the voters in the log."""

Ack = object


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Make this durable, then say `election_persisted`."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Append this batch; once it and all before it are durable, say `durable`."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything before `high_watermark` is safe; these acknowledgements may go out, in this order."""

    high_watermark: int
    acks: tuple[Ack, ...]


Effect = PersistElection | WriteBatch | Committed


class VoterSet:
    """The voters as the log has them. Without a VotersRecord (`kraft.version` 0) they come from configuration."""

    __slots__ = ("in_log", "kraft_version", "record")

    def __init__(self, kraft_version: int, record: VotersRecord, in_log: bool) -> None:
        self.kraft_version = kraft_version
        self.record = record
        self.in_log = in_log

    @property
    def ids(self) -> list[int]:
        return [voter.voter_id for voter in self.record.voters]

    def find(self, node_id: int) -> VotersVoter | None:
        return next((voter for voter in self.record.voters if voter.voter_id == node_id), None)


def one_voter(node_id: int, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]) -> VotersRecord:
    """The voters of a quorum that begins with this node; an endpoint is a listener's name, host and port."""
    voter = VotersVoter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in endpoints],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION),
    )
    return VotersRecord(version=0, voters=[voter])


class Quorum:
    def __init__(
        self,
        node_id: int,
        election: ElectionState,
        voters: VoterSet,
        *,
        log_end: int,
        last_epoch: int,
    ) -> None:
        if voters.ids != [node_id]:
            raise ValueError(
                f"node {node_id} cannot lead the metadata quorum alone: its voters are {voters.ids or 'nobody'}"
            )
        self.node_id = node_id
        self.election = election
        self.voters = voters
        self.log_end = log_end
        self.high_watermark = NO_HIGH_WATERMARK
        self.epoch_start = NO_HIGH_WATERMARK
        """Where this leader's first batch lies; nothing up to it is exposed before it is committed."""
        self._last_epoch = last_epoch
        self._durable_ends = dict.fromkeys(voters.ids, NO_HIGH_WATERMARK)
        self._waiting: deque[tuple[int, Ack]] = deque()

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def is_leader(self) -> bool:
        return self.epoch_start != NO_HIGH_WATERMARK

    def start(self) -> list[Effect]:
        """Stands for election in a new epoch. With one voter its own vote is a majority."""
        assert not self.is_leader, "started twice"
        epoch = max(self.election.epoch, self._last_epoch) + 1
        elected = ElectionState(leader_id=self.node_id, epoch=epoch)
        assert self.election.may_be_followed_by(elected), f"{elected} after {self.election}"
        self.election = elected
        return [PersistElection(elected)]

    def election_persisted(self, state: ElectionState, now_ms: int) -> list[Effect]:
        """The election is durable: this node leads, and says so in the log before anything else."""
        assert state == self.election, f"{state} was persisted, not {self.election}"
        assert not self.is_leader, "elected twice"
        self.epoch_start = self.log_end
        leaders = [Voter(voter_id=voter) for voter in self.voters.ids]
        change = LeaderChangeMessage(
            version=0, leader_id=self.node_id, voters=leaders, granting_voters=[Voter(voter_id=self.node_id)]
        )
        records: list[tuple[int, bytes]] = [(ControlType.LEADER_CHANGE, change.encode(0))]
        if not self.voters.in_log and self.voters.kraft_version > 0:
            version = KRaftVersionRecord(version=0, kraft_version=self.voters.kraft_version)
            records.append((ControlType.KRAFT_VERSION, version.encode(0)))
            records.append((ControlType.KRAFT_VOTERS, self.voters.record.encode(0)))
            self.voters.in_log = True
        return [self._write(build_control_batch(records, self.log_end, now_ms, self.epoch), len(records))]

    def append(self, values: Sequence[bytes], now_ms: int, ack: Ack) -> list[Effect]:
        """Writes one batch of metadata records. `ack` comes back in the `Committed` that covers it."""
        assert self.is_leader, "only a leader appends"
        assert values, "an empty batch"
        builder = BatchBuilder(base_offset=self.log_end, leader_epoch=self.epoch)
        for value in values:
            builder.append(now_ms, None, value)
        write = self._write(builder.build(), len(values))
        self._waiting.append((write.end_offset, ack))
        return [write]

    def wait_for_log_end(self, ack: Ack) -> list[Effect]:
        """Gives `ack` back when everything appended so far is committed: at once, if it is."""
        if self.high_watermark >= self.log_end:
            return [Committed(self.high_watermark, (ack,))]
        self._waiting.append((self.log_end, ack))
        return []

    def durable(self, voter_id: int, end_offset: int) -> list[Effect]:
        """A voter has everything before `end_offset` in durable bytes."""
        assert end_offset <= self.log_end, f"voter {voter_id} holds {end_offset} of {self.log_end}"
        if end_offset <= self._durable_ends[voter_id]:
            return []
        self._durable_ends[voter_id] = end_offset
        ends = sorted(self._durable_ends.values(), reverse=True)
        held_by_majority = ends[len(ends) // 2]
        if held_by_majority <= max(self.high_watermark, self.epoch_start) or not self.is_leader:
            return []
        self.high_watermark = held_by_majority
        released: list[Ack] = []
        while self._waiting and self._waiting[0][0] <= self.high_watermark:
            released.append(self._waiting.popleft()[1])
        return [Committed(self.high_watermark, tuple(released))]

    def _write(self, data: bytes, records: int) -> WriteBatch:
        write = WriteBatch(self.log_end, self.log_end + records, self.epoch, data)
        self.log_end = write.end_offset
        return write
