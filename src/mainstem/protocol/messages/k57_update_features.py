"""UpdateFeatures (key 57) changes finalized feature levels (KIP-584)."""

from __future__ import annotations

from mainstem.protocol.schema import Bool, Int8, Int16, Int32, Message, Str, Struct, field


class FeatureUpdateKey(Struct):
    feature: Str = field("0+")
    max_version_level: Int16 = field("0+")
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field("0+")
    validate_only: Bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+")
    results: list[UpdatableFeatureResult] = field("0-1", default_factory=list, ignorable=True)
