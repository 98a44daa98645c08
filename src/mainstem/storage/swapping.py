"""Putting a cleaned segment in the place of those it was made from, so that no crash leaves a mixture (C6).

Kafka's names and order, with the directory synced between the steps, because a power cut keeps any of the renames
after the last sync and loses any other:

1. The cleaner has written `.cleaned` files and synced them and their names. Until here a crash takes them away.
2. They become `.swap`, and that is synced: from here on the new segment wins. Where a crash kept only some of these
   renames there still is a `.cleaned` file, and everything is taken away.
3. The old files become `.deleted`, synced: no old segment may be seen beside the new one, which holds its offsets.
   The snapshots of the producers that belonged to them go along.
4. The new `.log` gets its name, synced: as long as a `.log.swap` is there, any index under a plain name is an old one.
5. The indexes get theirs. A crash may keep any of these renames, `recovery` makes the others.

(KAFKA-2118, KAFKA-6264, KAFKA-12520 are about crashes between these.)
"""

from mypy_extensions import i64

from mainstem.storage import names
from mainstem.storage.fs import FileSystem
from mainstem.storage.restructuring import Restructuring
from mainstem.storage.segment import Segment


class Swap(Restructuring):
    """Steps 2 to 5. An error leaves it to the next start to finish or undo them."""

    def __init__(
        self, fs: FileSystem, directory: str, old: list[Segment], snapshots_gone: list[str], due_ms: i64, new: Segment
    ) -> None:
        super().__init__(fs, directory, old, snapshots_gone, due_ms)
        self._new = new

    def _rename(self) -> None:
        fs, new = self._fs, self._new
        new.change_suffix(names.CLEANED, names.SWAP)
        fs.sync_directory(self._directory)
        for segment, snapshot in zip(self._gone, self._snapshots_gone, strict=True):
            self._mark_deleted(segment, snapshot)
        fs.sync_directory(self._directory)
        new.log.rename(fs, new.log.path.removesuffix(names.SWAP))
        fs.sync_directory(self._directory)
        for ref in new.refs():
            if ref is not new.log:
                ref.rename(fs, ref.path.removesuffix(names.SWAP))
