"""Disk faults: which operation on which path goes wrong, how, and how often."""

import errno
from collections.abc import Callable
from enum import Enum


class Effect(Enum):
    FAIL = "fail"
    """The operation raises and does nothing (S1 EIO, S2 ENOSPC, S13 with a path and no end)."""
    SHORT_WRITE = "short_write"
    """Some of the bytes are written, then it raises (S3)."""
    SPLIT_WRITE = "split_write"
    """All bytes are written, by two writes that power loss may separate (S3)."""
    MISDIRECT = "misdirect"
    """The bytes go to another place of the same file, and nobody is told (S11)."""
    FAIL_SYNC_AND_DROP = "fail_sync_and_drop"
    """The sync raises and what it should have synced is forgotten: the next sync succeeds with nothing done (S6)."""
    FLIP_BIT = "flip_bit"
    """One bit of what is read has changed (S9)."""


_OPERATIONS = {
    Effect.SHORT_WRITE: "write",
    Effect.SPLIT_WRITE: "write",
    Effect.MISDIRECT: "write",
    Effect.FLIP_BIT: "read",
}


class Fault:
    """Strikes operations that match, after letting `skip` of them pass, `times` times (-1: for ever).

    `operation` is one of open, read, write, truncate, sync, list, make_directory, rename, remove, remove_directory,
    sync_directory; None means every one that the effect can happen to.
    """

    __slots__ = ("_matches", "effect", "errno", "on_strike", "operation", "skip", "times")

    def __init__(
        self,
        effect: Effect,
        operation: str | None = None,
        path: str | Callable[[str], bool] = "",
        error: int = errno.EIO,
        skip: int = 0,
        times: int = 1,
    ) -> None:
        self.effect = effect
        self.operation = operation or _OPERATIONS.get(effect)
        self._matches = path
        self.errno = error
        self.skip = skip
        self.times = times
        self.on_strike: Callable[[str, str], None] | None = None
        """Called with the operation and the path that it strikes."""

    def strikes(self, operation: str, path: str) -> bool:
        if self.times == 0:
            return False
        if self.operation is None:
            if self.effect is Effect.FAIL_SYNC_AND_DROP and operation not in ("sync", "sync_directory"):
                return False
        elif operation != self.operation:
            return False
        matches = self._matches in path if isinstance(self._matches, str) else self._matches(path)
        if not matches:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times > 0:
            self.times -= 1
        if self.on_strike is not None:
            self.on_strike(operation, path)
        return True
