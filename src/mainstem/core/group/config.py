"""The settings that groups obey, by Kafka's names in the comments."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    size_max: int = 2**31 - 1  # group.max.size
    new_member_join_timeout_ms: int = 5 * 60 * 1000  # fixed in Kafka too
    offset_metadata_max: int = 4_096  # offset.metadata.max.bytes, which Kafka counts in characters
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000  # offsets.retention.minutes
    offsets_retention_check_ms: int = 600_000  # offsets.retention.check.interval.ms
