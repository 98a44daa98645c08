"""One of the two brokers that get the same requests: its connection, and what it calls the things we name.

Topic ids, member ids and producer ids differ between two brokers that do the same. A side knows its own by name or by
number, so that a request can be built for it and its answers can be compared with the other's.
"""

import socket
from dataclasses import dataclass, field
from typing import Any

from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.fields import Struct
from mainstem.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from mainstem.protocol.rpc import decode_response, encode_request
from mainstem.protocol.schema import ZERO_UUID, Message

CLIENT_ID = "differential"
ANSWER_TIMEOUT_S = 15.0
NO_SUCH_ID = bytes(range(16))

# What may differ, and why. Everything else is compared.
IGNORED_FIELDS = {
    "throttle_time_ms": "how busy the broker is",
    "error_message": "wording",
    "batch_index_error_message": "wording",
    "cluster_id": "chosen when formatted",
    "host": "an address",
    "port": "an address",
    "session_id": "random",
    "finalized_features_epoch": "an offset of the metadata log",
    "documentation": "wording",
}


class Disconnected(Exception):  # noqa: N818 (an outcome, not an error)
    """The broker ended the connection instead of answering."""


@dataclass
class Side:
    name: str
    port: int
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    member_ids: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)
    _names: dict[bytes, str] = field(default_factory=dict)
    _known_members: dict[str, str] = field(default_factory=dict)
    _socket: socket.socket | None = None
    _correlation_id: int = 0
    _asked: tuple[int, int] = (-1, -1)

    def send(self, message: Message, version: int) -> Message:
        """The answer; Disconnected where there is none."""
        self.begin(message, version)
        return self.end()

    def begin(self, message: Message, version: int) -> None:
        """Sends a request whose answer may take until others have done something."""
        self._correlation_id += 1
        frame = encode_request(message, version, self._correlation_id, CLIENT_ID)
        self._asked = (message.API_KEY, version)
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self.port), ANSWER_TIMEOUT_S)
            self._socket.sendall(frame)
        except ConnectionError:
            self.close()
            raise Disconnected from None

    def end(self) -> Message:
        """The answer to what was sent last."""
        try:
            size = int.from_bytes(self._read(4), "big")
            correlation_id, answer = decode_response(self._read(size), *self._asked)
        except (ConnectionError, Disconnected):
            self.close()
            raise Disconnected from None
        assert correlation_id == self._correlation_id
        return answer

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        parts = b""
        while len(parts) < count:
            chunk = self._socket.recv(count - len(parts))
            if not chunk:
                raise Disconnected
            parts += chunk
        return parts

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def look_up_topics(self) -> dict[str, int]:
        """Topics with their partition counts as the broker tells them now; remembers their ids."""
        answer = self.send(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        assert isinstance(answer, MetadataResponse)
        self.topic_ids = {topic.name: topic.topic_id for topic in answer.topics if topic.name is not None}
        self._names |= {topic_id: name for name, topic_id in self.topic_ids.items()}
        return {
            topic.name: len(topic.partitions)
            for topic in answer.topics
            if topic.name is not None and all(one.leader_id >= 0 for one in topic.partitions)
        }

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids.get(name, NO_SUCH_ID)

    def remember_member(self, group: str, member_id: str, generation: int) -> None:
        self.member_ids[group] = member_id
        self.generations[group] = generation
        self._known_members.setdefault(member_id, f"member {len(self._known_members)}")

    def plain(self, value: Any, name: str = "") -> Any:
        """An answer as plain values that can be compared with the other side's."""
        if isinstance(value, Struct):
            found = {
                key: self.plain(getattr(value, key), key) for key in type(value).FIELDS if key not in IGNORED_FIELDS
            }
            if found.get("error_code"):
                found.pop("topic_id", None)
            return found
        if isinstance(value, list):
            items = [self.plain(one, name) for one in value]
            # The order of topics, groups and settings comes from hash maps in Kafka.
            return sorted(items, key=repr)
        if name == "topic_id":
            return "none" if value == ZERO_UUID else self._names.get(value, "unknown")
        if name == "records":
            data = value or b""
            return [self._plain_batch(data[one.start : one.end]) for one in iterate_batches(data, 0, len(data))]
        if name == "producer_id" and value in self.producer_ids:
            return f"producer {self.producer_ids.index(value)}"
        if name == "log_append_time_ms":
            return "none" if value == -1 else "some"
        if isinstance(value, str):
            return self._known_members.get(value, value)
        return value

    def _plain_batch(self, batch: bytes) -> tuple[str, bytes]:
        """The batch without what each broker gives it: a producer's id, which is told by its number, the time of the
        append, and the checksum over both."""
        view = BatchView(batch, 0)
        known = view.producer_id in self.producer_ids
        who = f"producer {self.producer_ids.index(view.producer_id)}" if known else "nobody"
        if not known and not view.is_log_append_time:
            return who, batch
        time_given = b"" if view.is_log_append_time else batch[35:43]
        return who, batch[:17] + batch[21:35] + time_given + (b"" if known else batch[43:51]) + batch[51:]
