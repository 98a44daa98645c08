"""The one way storage fails: a disk that did not do what it was asked, bytes that are not what was written, or a change
that was begun and cannot be ended.

A `StorageError` takes the log it names offline; clients are told KAFKA_STORAGE_ERROR. Where the disk is its cause it
takes the directory with it (D5). It is never retried: after a failed fsync the kernel may have dropped the pages, and a
second one would succeed over a hole (KAFKA-10778).
"""

from typing import Final

from mainstem.protocol.errors import ErrorCode


class StorageError(Exception):
    """`path` is the file, `position` the byte in it where that is known.

    `cause` is what the operating system said, where it was the disk that failed and not the bytes that were wrong. It
    is a field of its own because a compiled `raise ... from ...` leaves `__cause__` empty (mypyc ignores the `from`).
    `mistake` is an error of ours amid a change: disk and bytes are sound, and what is known of the log may not be.
    """

    def __init__(
        self,
        path: str,
        message: str,
        position: int = -1,
        cause: OSError | None = None,
        mistake: Exception | None = None,
    ) -> None:
        where = path if position < 0 else f"{path} at byte {position}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.position = position
        self.cause = cause
        self.mistake = mistake

    @property
    def code(self) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR


class OutOfFilesError(StorageError):
    """The system has no file to give for now (EMFILE, ENFILE). Nothing was begun, and nothing has failed: unlike any
    other, this may be tried again."""


class WouldBlock(Exception):  # noqa: N818 - a signal, not a failure
    """What was to be read is not in memory: ask again where blocking is allowed."""


WOULD_BLOCK: Final = WouldBlock()
