"""The settings that transactions obey, by Kafka's names in the comments."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TxnConfig:
    timeout_max_ms: int = 900_000  # transaction.max.timeout.ms
    expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    expiration_check_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    timeout_check_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    two_phase_commit: bool = False  # transaction.two.phase.commit.enable
