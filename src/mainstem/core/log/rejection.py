"""Records that a leader refuses one by one, as a Produce response names them (KIP-467)."""

from mainstem.protocol.errors import ErrorCode, RemoteError


class RecordsRejectedError(RemoteError):
    """`record_errors` are (index in the batch, why), of the records that made the whole batch fail."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
