"""What an append answers."""

from mypy_extensions import i64


class AppendResult:
    """What was appended, or, for a retry, what had been."""

    __slots__ = (
        "base_offset",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time",
        "log_start",
        "records",
    )

    def __init__(
        self,
        base_offset: i64,
        last_offset: i64,
        log_append_time: i64,
        log_start: i64,
        leader_epoch: i64,
        records: i64,
        is_duplicate: bool,
    ) -> None:
        self.base_offset: i64 = base_offset
        self.last_offset: i64 = last_offset
        self.log_append_time: i64 = log_append_time
        self.log_start: i64 = log_start
        self.leader_epoch: i64 = leader_epoch
        self.records: i64 = records
        self.is_duplicate = is_duplicate
