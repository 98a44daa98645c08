"""Membership in a classic group: joining, getting partitions, heartbeats, leaving.

    out ── step ──▶ joining ── JoinGroup, SyncGroup ──▶ member ── heartbeat says so, or topics changed ──▶ joining
     ▲                                                    │
     └─────────── voted out, or no poll for max_poll_interval_ms ──┘

Everything the application can notice happens in `step`, which `poll` calls: partitions are taken from it before it
joins again (eager) or once it is known which ones (cooperative, KIP-429), and given when it has joined. The requests
themselves and the heartbeats go on beside it. A consumer that stops polling stops being a member: it leaves after
`max_poll_interval_ms` and finds out at its next `poll`. A static member (KIP-345) never says that it leaves.

All assignors that are offered must follow the same protocol; what they have in common is followed, so that "range" and
"cooperative-sticky" together are eager, as in Java, and a group can move from one to the other member by member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from mainstem.client.assignors import (
    ASSIGNORS,
    NO_GENERATION,
    PROTOCOL_TYPE,
    Assignor,
    RebalanceProtocol,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from mainstem.client.assignors import Subscription as MemberSubscription
from mainstem.client.cluster import Cluster
from mainstem.client.commits import Coordinator, GroupMetadata
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import (
    ConsumerFencedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidOptionError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from mainstem.client.options import ConsumerOptions
from mainstem.client.subscription import Mode, Subscription
from mainstem.client.types import TopicPartition
from mainstem.protocol.api import ApiKey
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger(__name__)

JOIN_GRACE_MS: Final = 5000
"""How much longer than the rebalance may take the answer to JoinGroup is waited for."""
LEAVE_TIMEOUT_S: Final = 5.0
MEMBERS_FROM: Final = 3
"""LeaveGroup names its members since this version."""

Tell = Callable[[str, list[TopicPartition]], Awaitable[None]]
"""Calls the application's listener: the name of the method, and what it is about."""


class Membership:
    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        subscription: Subscription,
        options: ConsumerOptions,
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._subscription = subscription
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._assignors = [_assignor(name) for name in options.partition_assignment_strategy]
        common = frozenset(RebalanceProtocol).intersection(*(each.protocols for each in self._assignors))
        self._is_cooperative = RebalanceProtocol.COOPERATIVE in common
        self._member_id = ""
        self._generation = NO_GENERATION
        self._last_member: GroupMetadata | None = None
        """Who this was when the group went on without it; None while it is a member, or before it ever was."""
        self._protocol: str | None = None
        self._is_leader = False
        self._planned_for: dict[str, int] = {}
        """The partition counts that the leader assigned by."""
        self._joined_topics: frozenset[str] = frozenset()
        self._had: list[TopicPartition] = []
        """What was assigned last; `sticky` tells it after it was given back."""
        self._had_generation = NO_GENERATION
        self._reason = "this consumer has just subscribed"
        self._is_prepared = False
        self._join: asyncio.Task[list[TopicPartition]] | None = None
        self._is_joining = False
        self._join_at = 0.0
        self._pauses = cluster.backoff()
        self._heartbeats: asyncio.Task[None] | None = None
        self._fatal: KafkaError | None = None
        self._in_poll = False
        self._now = now
        """The loop's time; another that runs alike where polls come from another thread."""
        self._polled_at = now()
        self.needs_join = True
        self.tell: Tell = _nobody_listens
        self.before_revoking: Callable[[], Awaitable[None]] = _nothing
        """Commits what was read, where that is done by itself."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `step` has something to do."""

    @property
    def who(self) -> GroupMetadata:
        """Who the application acts as.

        One that was voted out goes on as who it was, until it has joined again: it still has records in its hands, and
        the coordinator must be able to refuse what it makes of them. Without a generation and a name it would pass for
        somebody who assigned partitions itself, and a transaction's offsets are taken from those at any time.
        """
        if self._generation == NO_GENERATION and self._last_member is not None:
            return self._last_member
        options = self._options
        assert options.group_id is not None
        return GroupMetadata(options.group_id, self._generation, self._member_id, options.group_instance_id)

    @property
    def is_settled(self) -> bool:
        """Whether `step` has nothing to do."""
        return not self.needs_join and self._join is None and self._fatal is None

    def entered_poll(self) -> None:
        self._in_poll = True

    def left_poll(self) -> None:
        self._in_poll = False
        self._polled_at = self._now()

    def request_join(self, reason: str) -> None:
        """Has this member join anew at the next step."""
        if not self.needs_join:
            log.debug("%s: joining group %s again", reason, self._options.group_id)
            self.needs_join = True
            self._reason = reason
            self.on_change()

    # The steps of poll

    async def step(self) -> None:
        """Does what the application must notice, as far as that goes without waiting for others."""
        if self._fatal is not None:
            raise self._fatal
        self._watch_topics()
        while self._join is not None or self.needs_join:
            if self._join is None:
                if self._join_at > self._loop.time():
                    return
                await self._prepare()
                if not self._is_prepared:
                    continue  # voted out meanwhile, and so there is more to give back
                self._start_join()
            assert self._join is not None
            if not self._join.done():
                return
            try:
                assigned = self._join.result()
            except KafkaError as error:
                self._join = None
                self._join_failed(error)
                continue
            except Exception:
                # Another member told something that makes no sense. Whoever polls on joins again.
                self._join = None
                self.needs_join = True
                raise
            self._pauses.reset()
            await self._complete(assigned)

    def _watch_topics(self) -> None:
        """Joins again where the topics, or the partitions that the leader assigned, are not those of last time."""
        subscription = self._subscription
        if subscription.mode is Mode.PATTERN:
            topics = self._cluster.cache.topics.values()
            subscription.match_topics(
                each.name for each in topics if not (each.is_internal and self._options.exclude_internal_topics)
            )
        if self._generation == NO_GENERATION or self.needs_join or self._join is not None:
            return
        if subscription.topics != self._joined_topics:
            self.request_join("the topics that this consumer wants have changed")
        elif self._is_leader and self._counts(self._planned_for) != self._planned_for:
            self.request_join("partitions have been added or topics have come or gone")

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.cache.topics
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    async def _prepare(self) -> None:
        """What a member does before it asks to join: once for each time, however often the request is repeated.

        Whoever stops waiting in the middle of it (a cancelled task, Ctrl-C) does all of it at the next poll.
        """
        if self._is_prepared:
            return
        owned, generation = list(self._subscription.partitions), self._generation
        raised: Exception | None = None
        if generation == NO_GENERATION:
            # Voted out: somebody else reads them already.
            raised = await self._lose(owned)
            self._subscription.replace(())
        elif not self._is_cooperative:
            raised = await self._revoke(owned)
            self._subscription.replace(())
        else:
            gone = [tp for tp in owned if not self._subscription.matches(tp.topic)]
            raised = await self._revoke(gone)
            if gone:
                self._subscription.replace(tp for tp in owned if tp not in gone)
        self._is_prepared = self._generation == generation
        if raised is not None:
            raise raised

    async def _revoke(self, partitions: list[TopicPartition]) -> Exception | None:
        """Has the application give them back. They are gone whatever its listener raises, which is given to be raised
        when that is done, as in Java."""
        if not partitions:
            return None
        # No more of them is given out, so what is committed is all that was.
        self._stop_reading(partitions)
        await self.before_revoking()
        return await self._told("on_partitions_revoked", partitions)

    async def _lose(self, partitions: list[TopicPartition]) -> Exception | None:
        if not partitions:
            return None
        self._stop_reading(partitions)
        return await self._told("on_partitions_lost", partitions)

    async def _told(self, what: str, partitions: list[TopicPartition]) -> Exception | None:
        try:
            await self.tell(what, partitions)
        except Exception as error:
            return error
        return None

    def _stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._subscription.partitions[tp].is_going = True

    async def _complete(self, assigned: list[TopicPartition]) -> None:
        """Takes over what the leader gave. Until that is done the join counts as under way, so that it is done again
        where somebody stops waiting in the middle."""
        stray = [tp for tp in assigned if not self._subscription.matches(tp.topic)]
        owned = list(self._subscription.partitions)
        revoked = [tp for tp in owned if tp not in assigned]
        added = [tp for tp in assigned if tp not in owned]
        raised = await self._revoke(revoked)
        self._join = None
        self._is_prepared = False
        self._had, self._had_generation = assigned, self._generation
        self._cluster.want({tp.topic for tp in assigned})
        self._subscription.replace(assigned)
        if stray:
            self.request_join("partitions were assigned that are no longer wanted")
        if revoked:
            self.request_join("partitions were revoked that others wait for")
        raised = await self._told("on_partitions_assigned", added) or raised
        if raised is not None:
            raise raised

    # Joining, beside poll

    def _start_join(self) -> None:
        self.needs_join = False
        self._is_joining = True
        self._join = self._cluster.spawn(self._join_once(), "join group")
        self._join.add_done_callback(self._join_is_over)

    def _join_is_over(self, join: asyncio.Task[list[TopicPartition]]) -> None:
        self._is_joining = False
        if not join.cancelled():
            join.exception()
        self.on_change()

    def _join_failed(self, error: KafkaError) -> None:
        """Has it tried again after a pause. Raises what a retry does not cure; who polls on all the same tries again,
        for somebody may have cured it, unless a successor has taken this member's place."""
        self.needs_join = True
        if isinstance(error, MemberIdRequiredError):
            return
        if error.code == ErrorCode.FENCED_INSTANCE_ID:
            self._fatal = self._as_fenced(error)
            raise self._fatal
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError | RebalanceInProgressError):
            self._reason = f"the last try to join ended with {error.code.name if error.code else error}"
            is_curable = True
        else:
            is_curable = error.retriable
        pause_s = self._pauses.next_s()
        log.debug("joining failed, trying again in %.3f s: %s", pause_s, error)
        self._join_at = self._loop.time() + pause_s
        self._loop.call_at(self._join_at, self._join_is_due)
        if not is_curable:
            raise error

    def _join_is_due(self) -> None:
        self._join_at = 0.0  # a timer may be early by less than it counts in
        self.on_change()

    def _as_fenced(self, error: KafkaError) -> KafkaError:
        if error.code != ErrorCode.FENCED_INSTANCE_ID:
            return error
        return ConsumerFencedError(
            f"another consumer has the group_instance_id {self._options.group_instance_id!r} now",
            broker=error.broker,
            code=error.code,
        )

    async def _join_once(self) -> list[TopicPartition]:
        """JoinGroup and SyncGroup: the partitions of this member."""
        connection = await self._coordinator.connection()
        topics = self._subscription.topics
        try:
            joined = await self._send_join(connection, topics)
            self._is_joining = False
            self._start_heartbeats()
            assignments = await self._plan(joined) if joined.leader == self._member_id else {}
            return await self._send_sync(connection, assignments)
        except ConnectionError:
            self._coordinator.forget()
            raise
        except UnknownMemberIdError:
            self._voted_out(forget_member=True)
            raise
        except IllegalGenerationError:
            self._voted_out(forget_member=False)
            raise

    async def _send_join(self, connection: BrokerConnection, topics: frozenset[str]) -> JoinGroupResponse:
        options = self._options
        owned = [tp for tp, state in self._subscription.partitions.items() if not state.is_going]
        protocols = []
        for assignor in self._assignors:
            subscription = MemberSubscription(
                sorted(topics),
                owned if self._is_cooperative else (),
                self._generation,
                assignor.user_data(self._had, self._had_generation) if self._had_generation >= 0 else None,
                rack=options.client_rack or None,
            )
            protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(subscription)))
        request = JoinGroupRequest(
            group_id=self._coordinator.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=options.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._reason[:255],
        )
        wait_ms = max(options.max_poll_interval_ms + JOIN_GRACE_MS, options.request_timeout_ms)
        answer = await connection.ask(request, JoinGroupResponse, timeout_s=wait_ms / 1000)
        if answer.error_code != 0:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
            raise self._coordinator.error(answer.error_code, "joining", connection)
        if answer.protocol_type not in (None, PROTOCOL_TYPE):
            raise InconsistentGroupProtocolError(f"a group of protocol {answer.protocol_type!r}")
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        self._last_member = None
        self._protocol = answer.protocol_name
        self._joined_topics = topics
        self._is_leader = answer.leader == answer.member_id
        return answer

    async def _plan(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """What the leader gives to whom."""
        members = {}
        try:
            for member in joined.members:
                members[member.member_id] = decode_subscription(member.metadata, member.group_instance_id)
        except RemoteError as error:
            raise InconsistentGroupProtocolError(f"a member's subscription cannot be read: {error}") from error
        topics = {topic for each in members.values() for topic in each.topics}
        self._cluster.want(topics)
        if any(topic not in self._cluster.cache.topics for topic in topics):
            await self._cluster.next_update(self._options.request_timeout_ms / 1000, now=True)
        counts = self._planned_for = self._counts(topics)
        if joined.skip_assignment:
            # A static leader that came back: the group keeps what it has (KIP-814).
            return {}
        assignor = next((each for each in self._assignors if each.name == self._protocol), None)
        if assignor is None:
            raise InconsistentGroupProtocolError(f"the group chose {self._protocol!r}, which was not offered")
        planned = assignor.assign({topic: count for topic, count in counts.items() if count}, members)
        return {member: encode_assignment(partitions) for member, partitions in planned.items()}

    async def _send_sync(self, connection: BrokerConnection, assignments: dict[str, bytes]) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        wait_ms = max(self._options.max_poll_interval_ms + JOIN_GRACE_MS, self._options.request_timeout_ms)
        answer = await connection.ask(request, SyncGroupResponse, timeout_s=wait_ms / 1000)
        if answer.error_code != 0:
            raise self._coordinator.error(answer.error_code, "getting partitions", connection)
        return decode_assignment(answer.assignment)

    # Staying a member

    def fenced(self, error: KafkaError, who: GroupMetadata) -> None:
        """The coordinator refused a request of `who`, which may be what we were a while ago."""
        if who.generation_id != self._generation or who.member_id != self._member_id or self._is_joining:
            return
        if isinstance(error, ConsumerFencedError) or error.code == ErrorCode.FENCED_INSTANCE_ID:
            self._fatal = self._as_fenced(error)
            self.on_change()
        elif error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._voted_out(forget_member=error.code == ErrorCode.UNKNOWN_MEMBER_ID)
            self.request_join(f"the group went on without this member ({error.code.name})")

    def _voted_out(self, *, forget_member: bool) -> None:
        if self._generation != NO_GENERATION:
            self._last_member = self.who
        self._generation = NO_GENERATION
        self._is_prepared = False
        if forget_member:
            self._member_id = ""

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None:
            self._heartbeats = self._cluster.spawn(self._beat(), "heartbeats")

    async def _beat(self) -> None:
        interval_s = self._options.heartbeat_interval_ms / 1000
        retry_s = min(interval_s, self._options.retry_backoff_ms / 1000)
        pause_s = interval_s
        try:
            while True:
                await asyncio.sleep(self._until_next(pause_s))
                pause_s = interval_s
                if self._fatal is not None:
                    return
                if self._generation == NO_GENERATION or self._is_joining:
                    continue
                if not self._in_poll and self._until_poll_is_late() <= 0:
                    await self._leave_late()
                    continue
                who = self.who
                try:
                    await self._heartbeat()
                except KafkaError as error:
                    pause_s = retry_s
                    if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                        pause_s = interval_s
                        if not self._is_joining and (self._join is None or self._join.done()):
                            self.request_join("the group is being rebalanced")
                    elif error.retriable:
                        log.debug("heartbeat: %s", error)
                    else:
                        log.info("heartbeat: %s", error)
                        self.fenced(error, who)
        finally:
            self._heartbeats = None

    def _until_next(self, pause_s: float) -> float:
        late_s = self._until_poll_is_late()
        return pause_s if self._in_poll or late_s <= 0 else min(pause_s, late_s)

    def _until_poll_is_late(self) -> float:
        return self._polled_at + self._options.max_poll_interval_ms / 1000 - self._now()

    async def _heartbeat(self) -> None:
        connection = await self._coordinator.connection()
        request = HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.group_instance_id,
        )
        try:
            answer = await connection.ask(request, HeartbeatResponse, timeout_s=self._options.session_timeout_ms / 1000)
        except ConnectionError:
            self._coordinator.forget()
            raise
        if answer.error_code != 0:
            raise self._coordinator.error(answer.error_code, "a heartbeat", connection)

    async def _leave_late(self) -> None:
        log.warning(
            "no poll for %d ms (max_poll_interval_ms): leaving group %s. Poll more often, or take less at a time "
            "(max_poll_records)",
            self._options.max_poll_interval_ms,
            self._options.group_id,
        )
        await self.leave("no poll for longer than max_poll_interval_ms")
        self.request_join("this consumer polls again")

    async def leave(self, reason: str) -> None:
        """Tells the group that this member is gone; a static one says nothing, for it may come back."""
        member_id = self._member_id
        # A static member keeps its id: the group still counts it in.
        self._voted_out(forget_member=self._options.group_instance_id is None)
        if not member_id or self._options.group_instance_id is not None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                connection = await self._coordinator.connection()
                if connection.in_flight:
                    # A join that waits for other members would hold up everything behind it.
                    connection.close()
                    connection = await self._coordinator.connection()
                version = connection.version_for(ApiKey.LEAVE_GROUP)
                if version >= MEMBERS_FROM:
                    member = MemberIdentity(member_id=member_id, reason=reason[:255])
                    request = LeaveGroupRequest(group_id=self._coordinator.group_id, members=[member])
                else:
                    request = LeaveGroupRequest(group_id=self._coordinator.group_id, member_id=member_id)
                await connection.ask(request, LeaveGroupResponse, version=version)
        except (KafkaError, TimeoutError) as error:
            log.debug("leaving group %s: %s", self._options.group_id, error)

    async def give_up(self, reason: str) -> None:
        """Gives everything back and leaves: for the end, and for another subscription."""
        if self._join is not None:
            if not self._join.done():
                # It waits for other members, and so would the last commit behind it.
                self._join.cancel()
                self._coordinator.hang_up()
            self._join = None
        owned = list(self._subscription.partitions)
        raised: Exception | None = None
        try:
            raised = await (self._revoke(owned) if self._generation != NO_GENERATION else self._lose(owned))
        finally:
            if self._heartbeats is not None:
                self._heartbeats.cancel()
            await self.leave(reason)
            self._is_prepared = False
            self._last_member = None
            self.needs_join = True
            self._reason = "this consumer has just subscribed"
            self._had, self._had_generation = [], NO_GENERATION
        if raised is not None:
            raise raised


def _assignor(name: str) -> Assignor:
    known = ASSIGNORS.get(name)
    if known is None:
        raise InvalidOptionError(f"partition_assignment_strategy has {name!r}; there are {', '.join(ASSIGNORS)}")
    return known


async def _nobody_listens(name: str, partitions: list[TopicPartition]) -> None:
    return


async def _nothing() -> None:
    return
