"""DeleteTopics (key 20) deletes topics, by name or, since v6, by id."""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Message, Str, Struct, Uuid, field


class DeleteTopicState(Struct):
    name: Str | None = field("6+", default=None)
    topic_id: Uuid = field("6+")


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+", default_factory=list)
    topic_names: list[Str] = field("0-5", default_factory=list, ignorable=True)
    timeout_ms: Int32 = field("0+")


class DeletableTopicResult(Struct):
    name: Str | None = field("0+", nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field("0+")
