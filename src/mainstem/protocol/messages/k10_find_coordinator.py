"""FindCoordinator (key 10) finds the coordinator of a group, a transactional id or a share partition.

Several keys at once since v4.
"""

from __future__ import annotations

from mainstem.protocol.schema import Int8, Int16, Int32, Message, Str, Struct, field


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: Str = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[Str] = field("4+", default_factory=list)


class Coordinator(Struct):
    key: Str = field("4+")
    node_id: Int32 = field("4+")
    host: Str = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: Str | None = field("4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: Str | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: Str = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default_factory=list)
