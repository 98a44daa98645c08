"""A produced batch that is judged in a thread, because it must be opened or packed anew and is large.

Made on the event loop with the rules that hold then; run anywhere; taken by `Log.append_prepared` on the loop. Opening
and packing let other threads run; walking the records does not, when compiled, so it pauses now and then.
"""

from collections.abc import Callable

from mypy_extensions import i64

from mainstem.core.log.producers import Origin
from mainstem.core.log.validation import BatchRules, ValidBatch, validate
from mainstem.protocol.errors import RemoteError


class Preparation:
    def __init__(self, buffer: bytes, start: i64, end: i64, rules: BatchRules, now_ms: i64) -> None:
        self.error: RemoteError | None = None
        self.valid: ValidBatch | None = None
        self._buffer = buffer
        self._start: i64 = start
        self._end: i64 = end
        self._rules = rules
        self._now_ms: i64 = now_ms
        self.beforehand: Callable[[], None] | None = None
        """What else the batch calls for that takes long."""

    def run(self, breathe: Callable[[], None]) -> None:
        """May take long; for a thread. What was wrong with the batch is kept for `result`."""
        if self.beforehand is not None:
            self.beforehand()
        try:
            self.valid = validate(
                self._buffer, self._start, self._end, self._rules, self._now_ms, Origin.CLIENT, breathe
            )
        except RemoteError as error:
            self.error = error

    def result(self) -> ValidBatch:
        """The batch as it may be appended, or the RemoteError."""
        if self.error is not None:
            raise self.error
        valid = self.valid
        assert valid is not None, "run first"
        return valid
