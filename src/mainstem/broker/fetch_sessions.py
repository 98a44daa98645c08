"""Fetch sessions (KIP-227): a client names its partitions once, then only what changed; so do we.

- A request with session id 0 and epoch 0 asks for a session, one with epoch -1 wants none (and ends the one it names).
- Later requests carry the session's epoch, which rises by one each time and starts at 1 again after 2^31 - 1. A wrong
  one is INVALID_FETCH_SESSION_EPOCH, an unknown id FETCH_SESSION_ID_NOT_FOUND, a switch between topic names and ids
  FETCH_SESSION_TOPIC_ID_ERROR: the client then starts anew.
- An answer within a session holds the partitions that have data, an error, or other offsets than the client was last
  told. One that had data goes to the end of the line, so that no partition starves.
- A session whose last partition is forgotten ends.
- There are `max.incremental.fetch.session.cache.slots` sessions. A new one takes the place of one unused for two
  minutes, or of a smaller one; else the client goes without. All of them together remember a million partitions at
  most, whoever made them up: past that a client goes without, too, and a session that grows past it ends.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EVICT_AFTER_MS: Final = 120_000
_EPOCH_MAX: Final = 0x7FFFFFFF
PARTITIONS_MAX: Final = 1_000_000

TopicKey = str | bytes
"""A topic's name, or its id in versions that have ids."""
SessionKey = tuple[TopicKey, int]


class SessionPartition:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = ("high_watermark", "log_start", "topic", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.topic = ""
        """The name of the topic, where it was found by its id."""
        self.high_watermark = -1
        self.log_start = -1


class FetchSession:
    __slots__ = ("epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: dict[SessionKey, SessionPartition] = {}

    def add(self, request: FetchRequest, uses_topic_ids: bool) -> None:
        """Takes over what the request wants."""
        partitions = self.partitions
        for topic in request.topics:
            name: TopicKey = topic.topic_id if uses_topic_ids else topic.name
            for wanted in topic.partitions:
                known = partitions.get((name, wanted.partition))
                if known is None:
                    partitions[name, wanted.partition] = SessionPartition(wanted)
                else:
                    known.wanted = wanted

    def forget(self, request: FetchRequest, uses_topic_ids: bool) -> None:
        """Leaves out what a request that goes on with the session names for that; one that begins it is not asked."""
        for forgotten in request.forgotten:
            name: TopicKey = forgotten.topic_id if uses_topic_ids else forgotten.name
            for index in forgotten.partitions:
                self.partitions.pop((name, index), None)

    def must_tell(self, key: SessionKey, answer: FetchPartitionResponse) -> bool:
        """Whether the answer says anything new; remembers it as told."""
        known = self.partitions.get(key)
        if known is None:
            return True
        changed = (
            answer.records_size > 0
            or answer.error_code != 0
            or answer.high_watermark != known.high_watermark
            or answer.log_start_offset != known.log_start
            or answer.diverging_epoch >= 0
            or answer.preferred_read_replica >= 0
        )
        # After an error the client is told everything again.
        known.high_watermark = answer.high_watermark if answer.error_code == 0 else -1
        known.log_start = answer.log_start_offset if answer.error_code == 0 else -1
        if answer.records_size > 0:
            del self.partitions[key]
            self.partitions[key] = known
        return changed


class FetchSessions:
    def __init__(self, slots: int, rng: Random, now_ms: Callable[[], int]) -> None:
        self._slots = slots
        self._rng = rng
        self._now_ms = now_ms
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0
        """Of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession | None:
        """The session a request continues; None where it is a full request. RemoteError where it cannot go on."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)
            return None
        session = self._sessions.get(request.session_id)
        if session is None:
            raise RemoteError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise RemoteError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.session_id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise RemoteError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "topic names and ids in one fetch session")
        before = len(session.partitions)
        session.add(request, uses_topic_ids)
        session.forget(request, uses_topic_ids)
        self.partition_count += len(session.partitions) - before
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used_ms = self._now_ms()
        if not session.partitions or (self.partition_count > PARTITIONS_MAX and len(session.partitions) > before):
            self._end(session.session_id)
            session.session_id = NO_SESSION
        return session

    def _end(self, session_id: int) -> None:
        ended = self._sessions.pop(session_id, None)
        if ended is not None:
            self.partition_count -= len(ended.partitions)

    def begin(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession | None:
        """A session for a full request that asks for one, where there is room."""
        if request.session_epoch != INITIAL_EPOCH:
            return None
        wanted = sum(len(topic.partitions) for topic in request.topics)
        if wanted == 0 or not self._make_room(wanted):
            return None
        session = FetchSession(self._new_id(), uses_topic_ids, self._now_ms())
        session.add(request, uses_topic_ids)
        self._sessions[session.session_id] = session
        self.partition_count += len(session.partitions)
        return session

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 0x7FFFFFFF)
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, partitions: int) -> bool:
        is_crowded = self.partition_count + partitions > PARTITIONS_MAX
        if len(self._sessions) < self._slots and not is_crowded:
            return True
        if not self._sessions:
            return False
        now_ms = self._now_ms()
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms <= _EVICT_AFTER_MS:
            oldest = min(self._sessions.values(), key=lambda session: len(session.partitions))
            if is_crowded or len(oldest.partitions) >= partitions:
                return False
        self._end(oldest.session_id)
        return self.partition_count + partitions <= PARTITIONS_MAX
