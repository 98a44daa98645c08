"""What a recovery has removed from the end of a log: kept for whoever tells people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecoveryCut:
    offset: int
    """Where the log ends since."""
    bytes: int
    segments: int
    """How many went whole."""
    reason: str
