"""Bugs of our own, put back, that take an index whose last entry is not what was written."""

import pytest

from mainstem.protocol.varint import I64_MAX
from mainstem.storage.segment import Segment
from tests.mutations.tuned import Reached


def last_entry_believed(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Nobody compares the last entry of an offset index with the batch that is to have the next one."""

    def is_built_anew(self: Segment, offset: int = I64_MAX, position: int = I64_MAX) -> bool:
        self.check_indexes()
        if self.offset_index.is_ahead_of(offset, position):
            reached()
        if not self.time_index.is_ahead_of(self._max_timestamp, self._max_timestamp_offset):
            return False
        self.rebuild_indexes()
        return True

    patch.setattr(Segment, "_is_built_anew", is_built_anew)


def remembered_twice(patch: pytest.MonkeyPatch, reached: Reached) -> None:
    """Where an append has the indexes built anew, its batch is noted as it is read for them, and once more."""
    is_built_anew = Segment._is_built_anew
    index_written = Segment.index_written
    built: list[Segment] = []

    def noted(self: Segment, offset: int = I64_MAX, position: int = I64_MAX) -> bool:
        is_new = is_built_anew(self, offset, position)
        if is_new and offset != I64_MAX:
            built.append(self)
        return is_new

    def written_twice(
        self: Segment, base_offset: int, last_offset: int, max_timestamp: int, position: int, size: int
    ) -> None:
        built.clear()
        index_written(self, base_offset, last_offset, max_timestamp, position, size)
        if built:
            built.clear()
            reached()
            self._bytes_since_index_entry += size
            self._remember(base_offset, last_offset, position)

    patch.setattr(Segment, "_is_built_anew", noted)
    patch.setattr(Segment, "index_written", written_twice)
