"""Log lines that a person can read and a machine can parse: logfmt on standard error.

at=2026-11-15T10:00:00.123Z level=info topic=orders partitions=3 msg="created topic"
"""

import codecs
import logging
import time

from mainstem.protocol.errors import RemoteError
from mainstem.storage.errors import StorageError

# Looked up here: the first use reads a file, and what there is to say may be that no more can be opened.
_escape = codecs.getencoder("unicode_escape")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/+@[],")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def quoted(value: object) -> str:
    text = str(value)
    if text and _PLAIN.issuperset(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not escaped.isprintable():
        # A client's name must neither begin a new line nor move the cursor of who reads the log.
        escaped = "".join(one if one.isprintable() else _escape(one)[0].decode() for one in escaped)
    return f'"{escaped}"'


class LogfmtFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        parts = [f"at={at}.{int(record.msecs):03d}Z", f"level={record.levelname.lower()}"]
        parts += [f"{key}={quoted(value)}" for key, value in vars(record).items() if key not in _STANDARD]
        parts.append(f"msg={quoted(record.getMessage())}")
        if record.exc_info:
            parts.append(f"error={quoted(self.formatException(record.exc_info))}")
        return " ".join(parts)


def if_unforeseen(error: BaseException | None) -> BaseException | None:
    """For `exc_info`: of a disk or a peer that failed one sentence says enough, of a mistake of ours where it was."""
    return None if isinstance(error, StorageError | OSError | RemoteError) else error


def log_to_stderr(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogfmtFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
