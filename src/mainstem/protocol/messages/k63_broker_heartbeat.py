"""BrokerHeartbeat (key 63) keeps a broker registered, and asks to be unfenced or to shut down (KIP-631)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int16, Int32, Int64, Message, Uuid, field


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    current_metadata_offset: Int64 = field("0+")
    want_fence: Bool = field("0+")
    want_shut_down: Bool = field("0+")
    offline_log_dirs: list[Uuid] = field("1+", default_factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    is_caught_up: Bool = field("0+", default=False)
    is_fenced: Bool = field("0+", default=True)
    should_shut_down: Bool = field("0+")
