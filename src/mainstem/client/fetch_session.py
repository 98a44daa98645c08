"""A fetch session with one broker, from the consumer's side (KIP-227).

The first request names every partition; the broker remembers them under a session id, and later requests name only
what changed: new partitions, those with another offset, those that are to be forgotten. The epoch counts requests, so
that both sides notice when one was lost. After any doubt the session starts anew with a full request.

Topics are named by id from v13 on (KIP-516); a session has ids for all of its topics or for none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mainstem.client.types import TopicPartition
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_EPOCH_MAX: Final = 0x7FFFFFFF


class Wanted(NamedTuple):
    """What is asked of one partition."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: bytes


class FetchSession:
    __slots__ = ("_by_id", "epoch", "partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Wanted] = {}
        """What the broker remembers, if it answers what was sent last."""
        self._by_id = False

    def next_request(
        self, wanted: dict[TopicPartition, Wanted], by_id: bool
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What to name in the next request so that the broker knows of `wanted`, and of nothing else."""
        if self.epoch != INITIAL_EPOCH and by_id != self._by_id:
            # A session cannot change from names to ids or back.
            self.start_anew()
        self._by_id = by_id
        if self.epoch == INITIAL_EPOCH:
            self.partitions = dict(wanted)
            return _topics(wanted), []
        changed = {tp: want for tp, want in wanted.items() if self.partitions.get(tp) != want}
        replaced = {
            tp for tp in changed if tp in self.partitions and self.partitions[tp].topic_id != changed[tp].topic_id
        }
        forgotten = {tp: want for tp, want in self.partitions.items() if tp not in wanted or tp in replaced}
        self.partitions = dict(wanted)
        return _topics(changed), _forgotten(forgotten)

    def answered(self, session_id: int, error_code: int) -> bool:
        """Takes the answer's word on the session; whether its partitions count."""
        if error_code != 0:
            known = self.session_id
            self.start_anew()
            if error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                # The broker has a session for us that it may close when it sees this id with a full request.
                self.session_id = known
            return False
        if session_id == NO_SESSION:
            self.start_anew()
            return True
        self.session_id = session_id
        self.epoch = 1 if self.epoch == INITIAL_EPOCH or self.epoch == _EPOCH_MAX else self.epoch + 1
        return True

    def start_anew(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.partitions = {}


def _topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for tp, want in wanted.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(tp.topic, want.topic_id, [])
        partition = FetchPartition(tp.partition, want.offset, want.max_bytes)
        partition.current_leader_epoch = want.leader_epoch
        topic.partitions.append(partition)
    return list(topics.values())


def _forgotten(wanted: dict[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for tp, want in wanted.items():
        topic = topics.get((tp.topic, want.topic_id))
        if topic is None:
            topic = topics[tp.topic, want.topic_id] = ForgottenTopic(tp.topic, want.topic_id, [])
        topic.partitions.append(tp.partition)
    return list(topics.values())
