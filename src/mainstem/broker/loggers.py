"""The levels of this process's loggers, as the resource BROKER_LOGGER tells and changes them (KIP-412).

Names are those of the loggers here (`mainstem.broker.partitions`), levels are Kafka's six: FATAL is what Python calls
CRITICAL, and TRACE lies below DEBUG. Levels last until the process ends.
"""

import logging
from typing import Final

from mainstem.protocol.errors import ErrorCode, RemoteError

ROOT: Final = "root"
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


def levels() -> dict[str, str]:
    """The level in force for every logger, by name."""
    found = {ROOT: _level_name(logging.getLogger().level)}
    for name in sorted(logging.root.manager.loggerDict):
        logger = logging.root.manager.loggerDict[name]
        if isinstance(logger, logging.Logger) and _is_ours(name):
            found[name] = _level_name(logger.getEffectiveLevel())
    return found


def _is_ours(name: str) -> bool:
    return name == "mainstem" or name.startswith("mainstem.")


def _level_name(level: int) -> str:
    return max(
        (name for name, each in _LEVELS.items() if each <= level), key=lambda name: _LEVELS[name], default="TRACE"
    )


def check(changes: list[tuple[str, int, str | None]]) -> None:
    """RemoteError where one of the changes (name, operation, level) may not be made."""
    known = levels()
    for name, operation, level in changes:
        if operation in (_APPEND, _SUBTRACT):
            raise RemoteError(ErrorCode.INVALID_REQUEST, "a logger's level is set or deleted, not added to")
        if operation not in (_SET, _DELETE):
            raise RemoteError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        if name not in known:
            raise RemoteError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
        if operation == _DELETE and name == ROOT:
            raise RemoteError(ErrorCode.INVALID_REQUEST, "the root logger must keep a level")
        if operation == _SET and level not in _LEVELS:
            raise RemoteError(ErrorCode.INVALID_CONFIG, f"{name}={level}: a level is one of {', '.join(_LEVELS)}")


def change(changes: list[tuple[str, int, str | None]]) -> None:
    """Makes changes that were checked."""
    for name, operation, level in changes:
        logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if operation == _DELETE or level is None else _LEVELS[level])
