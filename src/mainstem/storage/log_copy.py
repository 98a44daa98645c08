"""Copies one log of a partition into another, while the first goes on: for a move between directories (KIP-113).

Batches are copied as they are, with their offsets and epochs, so the copy's bytes are the log's; its segments may be
cut elsewhere, and its indexes are its own. Rules:

- The copy begins where the log does, or with the batch that holds its start, which is set when the copy is complete.
- Where the log was cut, or its start passed what was copied, the copy begins anew.
- No checksum covers a batch's offset. One that is wrong may lie past the log's end, or have the next piece pass over
  sound batches: a copy that would not have every byte behind its beginning is none (CORRUPT_MESSAGE), and the log
  stays where it is.
- What may block is a `ReadJob` or a `Slice.read`, for a thread; the rest is the loop's.
"""

from collections.abc import Iterator
from typing import Final

from mainstem.protocol.batch import BatchView, iterate_batches
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.log import Log
from mainstem.storage.reading import ReadJob, Slice

_ANY_EPOCH: Final = 0x7FFFFFFF
_NEVER: Final = 1 << 62
_UNKNOWN: Final = -1
_BATCHES_TOGETHER: Final = 256
"""How many batches are appended before others are served: some milliseconds."""


class LogCopy:
    def __init__(self, source: Log, target: Log) -> None:
        self.source = source
        self.target = target
        self._truncations = source.truncations
        """How often the source had been cut when the copy was begun, the last time. Epochs would not tell: those of its
        oldest batches may be unknown, where a crash took their file or brought back what retention had taken."""
        self._begun_end = _NEVER
        self._begun_size = 0
        """Where the source ended, and how large it was, when the last piece was begun."""
        self._begun_generation = -1
        self._next_byte = _UNKNOWN
        """How many bytes of the source come before what is copied next, as long as nothing is taken out of it."""
        self._next_generation = -1

    @property
    def lag(self) -> int:
        """How many offsets are missing; 0 when all is there."""
        return max(self.source.log_end - self.target.log_end, 0)

    def is_close(self, max_bytes: int) -> bool:
        """Whether nothing is missing but what came while the last piece was copied, and that is no more than this.

        Where batches come all the time there may never be a moment when nothing is missing.
        """
        if self._has_parted():
            return False
        came = self.source.size - self._begun_size
        return not self.lag or (self.target.log_end >= self._begun_end and 0 <= came <= max_bytes)

    def begin_read(self, max_bytes: int, now_ms: int) -> ReadJob | Slice:
        """Looks for what comes next in the source."""
        source, target = self.source, self.target
        self._begun_end, self._begun_size = source.log_end, source.size
        self._begun_generation = source.generation
        if self._has_parted():
            self._truncations = source.truncations
            self._next_byte = _UNKNOWN
            target.truncate_fully_and_start_at(source.log_start, now_ms)
        return source.begin_read(max(target.log_end, source.log_start), max_bytes, self._begun_end)

    def _has_parted(self) -> bool:
        source, target = self.source, self.target
        if target.log_end > source.log_end or target.log_end < source.log_start:
            return True
        return self._truncations != source.truncations

    def append(self, piece: Slice, data: bytes, now_ms: int) -> None:
        for _ in self.append_in_steps(piece, data, now_ms):
            pass

    def append_in_steps(self, piece: Slice, data: bytes, now_ms: int) -> Iterator[None]:
        """Takes what was read of a piece; nothing, where the source had no batch from there to its end.

        Between two steps the loop may serve others. Who ends the move meanwhile takes no more of them.
        """
        source, target = self.source, self.target
        self._check_place(piece, data)
        if not data:
            target.skip_to(self._begun_end, now_ms)
        elif target.size == 0 and (first := BatchView(data, 0).base_offset) < target.log_end:
            target.truncate_fully_and_start_at(first, now_ms)
        start = 0
        for end in _ends(data):
            if start:
                yield
            target.append_as_follower(data, start, end, _ANY_EPOCH, now_ms)
            start = end
        target.update_high_watermark(source.high_watermark)

    def _check_place(self, piece: Slice, data: bytes) -> None:
        """Whether the piece begins where the last one ended, and ends before the source does."""
        source = self.source
        if source.generation != self._begun_generation:
            self._next_byte = _UNKNOWN
            return
        place, size, end = self._begun_size, 0, 0
        if data:
            place = source.bytes_before(piece.segment_base) + piece.position
            for batch in iterate_batches(data, 0, len(data)):
                size, end = batch.end, batch.next_offset
        is_next = self._next_byte in (_UNKNOWN, place) or self._next_generation != source.generation
        if not is_next or end > self._begun_end:
            raise RemoteError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{source.directory}: the batches in or before segment {max(piece.segment_base, 0)} do not follow one "
                "another. An offset is wrong, and a copy would lack records: the partition stays where it is",
            )
        self._next_byte = place + size
        self._next_generation = source.generation

    def complete(self, max_bytes: int, now_ms: int) -> None:
        """Copies all that is missing, now, and makes both durable. Blocks."""
        source, target = self.source, self.target
        while self.lag or self._has_parted():
            step = self.begin_read(max_bytes, now_ms)
            while isinstance(step, ReadJob):
                step.run()
                step = source.finish_read(step)
            data = step.read()
            step.release()
            self.append(step, data, now_ms)
        target.update_high_watermark(source.high_watermark)
        if source.log_start > target.log_start:
            target.advance_log_start(source.log_start)
        source.flush(now_ms)
        target.flush(now_ms)


def _ends(data: bytes) -> list[int]:
    """Where to pause between batches, and where they end."""
    ends: list[int] = []
    for number, batch in enumerate(iterate_batches(data, 0, len(data))):
        if number % _BATCHES_TOGETHER == 0:
            ends.append(0)
        ends[-1] = batch.end
    return ends
