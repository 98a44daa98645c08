"""The segments of one log in order of their base offsets, the last of them active, and what they weigh together."""

from bisect import bisect_right

from mypy_extensions import i64

from mainstem.storage.segment import Segment


class Segments:
    """`size` counts all bytes; whoever writes into a segment calls `grew`."""

    def __init__(self, segments: list[Segment]) -> None:
        self.size: i64 = 0
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self.replace(segments)

    def __len__(self) -> int:
        return len(self._segments)

    def at(self, index: i64) -> Segment:
        return self._segments[index]

    def all(self) -> list[Segment]:
        return list(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def floor(self, offset: i64) -> i64:
        """The index of the last segment that begins at or before `offset`, or -1."""
        count: i64 = len(self._bases)
        if count > 0 and i64(self._bases[count - 1]) <= offset:
            return count - 1
        return bisect_right(self._bases, offset) - 1

    def upper_offset(self, index: i64, log_end: i64) -> i64:
        """The first offset that is not in the segment at `index`."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end

    def add(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.size += segment.size

    def replace(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.recount()

    def take_first(self, count: i64) -> list[Segment]:
        taken = self._segments[:count]
        self.replace(self._segments[count:])
        return taken

    def grew(self, size: i64) -> None:
        self.size += size

    def recount(self) -> None:
        size: i64 = 0
        for segment in self._segments:
            size += segment.size
        self.size = size
