"""Steps that take more than one request or more than one connection: groups of several members, fetch sessions, and
frames that are not what they should be. Each is played on one side and tells what it saw, in plain values.
"""

import random
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from mainstem.protocol.api import APIS
from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from mainstem.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from mainstem.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.protocol.messages.k09_offset_fetch import OffsetFetchRequest
from mainstem.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from mainstem.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from mainstem.protocol.messages.k12_heartbeat import HeartbeatRequest
from mainstem.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from mainstem.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from mainstem.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from mainstem.protocol.rpc import encode_request
from mainstem.protocol.schema import Message
from tests.compat.differential.sides import Disconnected, Side

Play = Callable[[Side], Any]

_SILENCE_S = 2.0
_REBALANCE_S_MAX = 5.0
_SESSION_TURNS = ["go on", "go on", "add", "forget", "wrong", "unknown", "end"]


# -- groups --------------------------------------------------------------------------------------------------------


class Team:
    """Members of one group, each with a connection of its own: a join is answered when the others have joined."""

    def __init__(self, side: Side, group: str, rng: random.Random) -> None:
        self._side = side
        self._group = group
        self._seen: list[tuple[str, Message]] = []
        self._is_static = rng.random() < 0.5
        self._join_version = rng.randint(5 if self._is_static else 2, 9)
        self._sync_version = rng.randint(3, 5)
        self._protocols = rng.choice([["range"], ["range", "roundrobin"], ["sticky", "range"]])
        self.ids: dict[str, str] = {}
        self.generation = -1
        self._sides: dict[str, Side] = {}

    def connection(self, name: str) -> Side:
        if name not in self._sides:
            self._sides[name] = Side(self._side.name, self._side.port)
        return self._sides[name]

    def close(self) -> None:
        for one in self._sides.values():
            one.close()

    def saw(self, what: str, answer: Message) -> None:
        self._seen.append((what, answer))

    @property
    def seen(self) -> list[Any]:
        """Made plain at the end, when every member is known by its number."""
        return [(what, self._side.plain(answer)) for what, answer in self._seen]

    def _instance(self, name: str) -> str | None:
        return f"instance {name}" if self._is_static else None

    def _join_request(self, name: str, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=self._instance(name),
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=each, metadata=b"meta") for each in self._protocols],
        )

    def begin_join(self, name: str, member_id: str | None = None) -> None:
        """Sends the join of a member, with the id that the broker asks for first where it does."""
        connection = self.connection(name)
        known = self.ids.get(name, "") if member_id is None else member_id
        if self._join_version >= 4 and not known and not self._is_static:
            answer = connection.send(self._join_request(name, ""), self._join_version)
            assert isinstance(answer, JoinGroupResponse)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
            known = answer.member_id
            self._learn(name, known)
        connection.begin(self._join_request(name, known), self._join_version)

    def end_join(self, name: str) -> None:
        answer = self.connection(name).end()
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code == ErrorCode.NONE:
            self._learn(name, answer.member_id)
            self.generation = answer.generation_id
        self.saw(f"{name} joined", answer)

    def _learn(self, name: str, member_id: str) -> None:
        self.ids[name] = member_id
        self._side.remember_member(self._group, member_id, -1)

    def begin_sync(self, name: str, leads: bool) -> None:
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=f"for {who}".encode())
            for who, member_id in self.ids.items()
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.ids[name],
            group_instance_id=self._instance(name),
            protocol_type="consumer",
            protocol_name=None,
            assignments=assignments if leads else [],
        )
        if self._sync_version >= 5:
            request.protocol_name = self._protocols[0]
        self.connection(name).begin(request, self._sync_version)

    def end_sync(self, name: str) -> None:
        self.saw(f"{name} synced", self.connection(name).end())

    def heartbeat(self, name: str, member_id: str | None = None) -> Message:
        return self.connection(name).send(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self.ids[name] if member_id is None else member_id,
                group_instance_id=self._instance(name),
            ),
            4,
        )

    def wait_for_rebalance(self, name: str) -> None:
        """Until a member is told to join again."""
        deadline = time.monotonic() + _REBALANCE_S_MAX
        while True:
            answer = self.heartbeat(name)
            if answer.error_code != ErrorCode.NONE or time.monotonic() > deadline:  # type: ignore[attr-defined]
                self.saw(f"{name} is told", answer)
                return
            time.sleep(0.01)

    def commit(self, name: str, topic: str, offset: int) -> None:
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.ids[name],
            group_instance_id=self._instance(name),
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        self.saw(f"{name} commits", self.connection(name).send(request, 8))

    def leave(self, name: str) -> None:
        identity = MemberIdentity(member_id=self.ids.pop(name), group_instance_id=self._instance(name))
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        self.saw(f"{name} leaves", self.connection(name).send(request, 4))

    def describe(self) -> None:
        self.saw("described", self._side.send(DescribeGroupsRequest(groups=[self._group]), 5))

    def delete(self) -> None:
        self.saw("deleted", self._side.send(DeleteGroupsRequest(groups_names=[self._group]), 2))

    def restart(self, name: str) -> None:
        """A static member comes back without its id: another takes its place, and the old one is fenced (KIP-345)."""
        old = self.ids[name]
        self.begin_join(name, "")
        self.end_join(name)
        self.saw("the old one", self.heartbeat(name, old))

    @property
    def is_static(self) -> bool:
        return self._is_static


def play_team(seed: int, group: str, topic: str) -> Play:
    """One member, then a second, a commit, somebody goes, and the end of the group."""

    def play(side: Side) -> Any:
        rng = random.Random(seed)
        team = Team(side, group, rng)
        try:
            team.begin_join("first")
            team.end_join("first")
            team.begin_sync("first", leads=True)
            team.end_sync("first")
            team.describe()
            team.begin_join("second")
            team.wait_for_rebalance("first")
            team.commit("first", topic, 3)
            team.begin_join("first")
            team.end_join("first")
            team.end_join("second")
            team.begin_sync("second", leads=False)
            team.begin_sync("first", leads=True)
            team.end_sync("first")
            team.end_sync("second")
            team.describe()
            team.commit("second", topic, 4)
            team.delete()
            if team.is_static and rng.random() < 0.7:
                team.restart("second")
                team.describe()
            team.leave(rng.choice(["first", "second"]))
            team.describe()
            for name in list(team.ids):
                team.leave(name)
            team.describe()
            team.delete()
            team.describe()
        finally:
            team.close()
        return team.seen

    return play


# -- fetch sessions ------------------------------------------------------------------------------------------------


def play_session(seed: int, names: list[str]) -> Play:
    """A session is begun, goes on, forgets and adds partitions, and ends; or its epoch or id is wrong (KIP-227)."""

    def play(side: Side) -> Any:
        rng = random.Random(seed)
        version = rng.randint(7, 18)
        session, epoch = 0, 0
        seen: list[Any] = []

        def topic(name: str, *partitions: FetchPartition) -> FetchTopic:
            if version >= 13:
                return FetchTopic(topic_id=side.topic_id(name), partitions=list(partitions))
            return FetchTopic(topic=name, partitions=list(partitions))

        def forgotten(name: str, index: int) -> ForgottenTopic:
            if version >= 13:
                return ForgottenTopic(topic_id=side.topic_id(name), partitions=[index])
            return ForgottenTopic(topic=name, partitions=[index])

        with closing(Side(side.name, side.port)) as connection:
            for turn in range(6):
                kind = (
                    "begin" if turn == 0 else rng.choice(["go on", "go on", "add", "forget", "wrong", "unknown", "end"])
                )
                wanted = [
                    topic(
                        name,
                        FetchPartition(
                            partition=rng.choice([0, 0, 1, 7]),
                            fetch_offset=rng.choice([0, 0, 1, 2, 900]),
                            partition_max_bytes=100_000,
                        ),
                    )
                    for name in rng.sample(names, 2)
                ]
                gone = [forgotten(rng.choice(names), rng.choice([0, 0, 1]))]
                shift = rng.choice([1, 5])
                request = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=1_000_000,
                    session_id={"unknown": 12345}.get(kind, session),
                    session_epoch={"begin": 0, "end": -1, "wrong": epoch + shift}.get(kind, epoch),
                    topics=wanted if kind in ("begin", "add") else [],
                    forgotten_topics_data=gone if kind == "forget" else [],
                )
                try:
                    answer = connection.send(request, version)
                except Disconnected:
                    seen.append((kind, "disconnected"))
                    break
                assert isinstance(answer, FetchResponse)
                found = side.plain(answer)
                # A topic is told in one piece or in several, by the order of the partitions, which is the broker's own.
                found["responses"] = sorted(
                    (topic["topic"], topic["topic_id"], repr(one))
                    for topic in found["responses"]
                    for one in topic["partitions"]
                )
                seen.append((kind, "in session" if answer.session_id else "no session", found))
                if kind == "begin":
                    session = answer.session_id
                if kind == "end" or not session:
                    break
                if answer.error_code == ErrorCode.NONE:
                    epoch += 1
        return seen

    return play


# -- frames --------------------------------------------------------------------------------------------------------


def play_frame(frame: bytes) -> Play:
    """What becomes of a frame that is sent as it is: an answer of so many bytes, a closed connection, or nothing."""

    def play(side: Side) -> Any:
        with socket.create_connection(("127.0.0.1", side.port), _SILENCE_S) as connection:
            try:
                connection.sendall(frame)
                head = connection.recv(4)
                if len(head) < 4:
                    return "disconnected"
                size = int.from_bytes(head, "big")
                answer = b""
                while len(answer) < size:
                    answer += connection.recv(size - len(answer))
                return "answered", answer[:4], answer[4:6] if size < 40 else b""
            except TimeoutError:
                return "nothing"
            except ConnectionError:
                return "disconnected"

    return play


def bad_frame(rng: random.Random, topic: str, group: str) -> bytes:
    """A frame that is wrong in one way, of a request that changes nothing."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    message, version = rng.choice(
        [
            (ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]), 7),
            (ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]), 2),
            (DescribeGroupsRequest(groups=[group]), 5),
            (DescribeGroupsRequest(groups=[group]), 0),
            (OffsetFetchRequest(group_id=group, topics=None), 5),
            (FindCoordinatorRequest(key=group), 3),
        ]
    )
    frame = encode_request(message, version, 77, "differential")
    body = bytearray(frame[4:])
    kind = rng.choice(["cut", "version", "api", "negative", "huge", "header", "count"])
    if kind == "cut":
        body = body[: -rng.randint(1, min(4, len(body) - 14))]
    elif kind == "version":
        key = rng.choice(sorted(key for key, api in APIS.items() if api.name != "ApiVersions"))
        body[0:4] = key.to_bytes(2, "big") + rng.choice([99, 32767]).to_bytes(2, "big")
    elif kind == "api":
        body[0:2] = rng.choice([200, 32767, 0xFFFF]).to_bytes(2, "big")
    elif kind == "negative":
        return rng.choice([-1, -5, -(1 << 31)]).to_bytes(4, "big", signed=True) + bytes(body)
    elif kind == "huge":
        return (0x7FFFFFFF).to_bytes(4, "big") + bytes(body)
    elif kind == "header":
        body = body[: rng.randint(1, 7)]
    else:
        # The first thing after the header: a length for most, and far too large. Negative ones are a listed difference.
        at = 10 + len("differential") + (1 if version >= APIS[message.API_KEY].flexible_from else 0)
        body[at:at] = b"\x7f\xff\xff\xff"
        body = body[: len(frame) - 4]
    return len(body).to_bytes(4, "big") + bytes(body)
