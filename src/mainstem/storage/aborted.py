"""Which aborted transactions a reader of a slice must know of, looked up without holding up the event loop.

An `AbortedJob` asks one segment, as a `ReadJob` does: `try_run` if everything it needs is in memory and little, `run`
in a thread otherwise; pins are taken and given back on the loop, where `ReadableLog.finish_aborted` goes on to the next
segment or says what was found. Markers lie in the segment of the slice or in a later one, so several segments may have
to be asked; most have no transaction index, and are passed over. Where a transaction was open for long, all that were
aborted meanwhile are looked at, which may be very many.
"""

from typing import Final

from mypy_extensions import i64

from mainstem.storage.errors import StorageError, WouldBlock
from mainstem.storage.fs import File
from mainstem.storage.segment import Segment
from mainstem.storage.txn_index import BLOCK_ENTRIES, AbortedTransaction

_BLOCKS_ON_THE_LOOP: Final = 4096 // BLOCK_ENTRIES
"""How many of one job are looked at on the event loop, in all segments together."""


class AbortedJob:
    """Collects what overlaps `[first_offset, upper_offset)`. `generation` is the log's.

    Where `end_position` is not negative, the range ends sooner: with the first batch that the offset index of
    `sliced` has at or after that position, if there is such a batch. To know of more transactions does no harm.
    """

    def __init__(
        self, first_offset: i64, upper_offset: i64, sliced: Segment | None, end_position: i64, generation: i64
    ) -> None:
        self.first_offset: i64 = first_offset
        self.upper_offset: i64 = upper_offset
        self.generation: i64 = generation
        self.segment: Segment | None = None
        self.found: list[AbortedTransaction] = []
        self.error: Exception | None = None
        self.is_over = False
        """Whether later segments have nothing more."""
        self._sliced = sliced
        self._end_position: i64 = end_position
        self._index: File | None = None
        self._log: File | None = None
        self._transactions: File | None = None
        self._size: i64 = 0
        self._position: i64 = -1
        """Up to where the segment at hand was looked through."""
        self._blocks: i64 = 0

    def pin(self, segment: Segment) -> None:
        """On the loop: the segment to be asked next, which has a transaction index."""
        self.segment = segment
        self._transactions = segment.txn_index.ref.pin()
        self._size = self._transactions.size()
        self._position = -1
        sliced = self._sliced
        if sliced is not None and not sliced.index_damage():
            self._index = sliced.offset_index.ref.pin()
            self._log = sliced.log.pin()

    def unpin(self) -> None:
        segment, sliced = self.segment, self._sliced
        if self._transactions is not None and segment is not None:
            self._transactions = None
            segment.txn_index.ref.unpin()
        if self._index is not None and sliced is not None:
            self._index = None
            self._log = None
            sliced.log.unpin()
            sliced.offset_index.ref.unpin()
        self._sliced = None  # it has said what it knows

    def try_run(self) -> bool:
        """True when done; False when something would have to be read from disk, or very much is to be looked at."""
        try:
            more = self._begin(True)
            while more:
                if self._blocks >= _BLOCKS_ON_THE_LOOP:
                    return False
                more = self._look(True)
        except WouldBlock:
            return False
        except (OSError, StorageError) as error:
            self.error = error
        return True

    def run(self) -> None:
        """May block; for a thread. A failure is kept for `ReadableLog.finish_aborted`."""
        while self.run_block():
            pass

    def run_block(self) -> bool:
        """A little of `run`; whether there is more."""
        try:
            return self._begin(False) and self._look(False)
        except (OSError, StorageError) as error:
            self.error = error
            return False

    def _begin(self, cached: bool) -> bool:
        """Finds where to begin, unless it has; whether there is something to look at."""
        segment, transactions = self.segment, self._transactions
        assert segment is not None, "pin first"
        assert transactions is not None, "pin first"
        index, log, sliced = self._index, self._log, self._sliced
        if index is not None and log is not None and sliced is not None and self._end_position >= 0:
            end: i64 = sliced.bound_in(index, log, sliced.size, self._end_position, cached)
            if end >= 0:
                self.upper_offset = min(self.upper_offset, end)
            self._end_position = -1
        if self._position < 0:
            self._position = segment.txn_index.position_before(transactions, self._size, self.first_offset, cached)
        return self._position < self._size and not self.is_over

    def _look(self, cached: bool) -> bool:
        """Looks at the next block; whether there is another."""
        segment, transactions = self.segment, self._transactions
        assert segment is not None, "pin first"
        assert transactions is not None, "pin first"
        following: i64 = segment.txn_index.collect_from(
            transactions, self._position, self._size, self.first_offset, self.upper_offset, self.found, cached
        )
        self._blocks += 1
        if following < 0:
            self.is_over = True
            return False
        self._position = following
        return following < self._size
