"""How a command ends: its exit code, and the one sentence that says what went wrong and what to do.

| code | means |
|---|---|
| 0 | done |
| 1 | the broker refused, or what was checked is not in order |
| 2 | the words on the command line make no sense |
| 3 | no broker answered, or not in time: trying again can help |
| 4 | there is no such topic, group, file … |
| 130 | interrupted |

A user's mistake is a `UserError`; `describe` puts everything that may be raised into words. Nobody sees a traceback,
except with MAINSTEM_DEBUG=1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mainstem.client.errors import KafkaError

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
INTERRUPTED: Final = 130


class UserError(Exception):
    """Something to tell the user in one sentence. `code` is the exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def wants_traceback() -> bool:
    return os.environ.get("MAINSTEM_DEBUG", "") not in ("", "0")


def together(errors: Sequence[Exception]) -> UserError:
    """Several failures of one command as one: a sentence each, and the code that says the most."""
    told = [describe(error) for error in errors]
    return UserError("\n".join(text for _, text, _ in told), max(code for code, _, _ in told))


def describe(error: Exception) -> tuple[int, str, dict[str, Any]]:
    """The exit code, the sentence, and what a script may want to know besides."""
    if isinstance(error, UserError):
        return error.code, str(error), {}
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND, f"there is no {error.filename}" if error.filename else str(error), {}
    from mainstem.client.errors import InvalidOptionError, KafkaError

    if isinstance(error, InvalidOptionError):
        return USAGE, error.message, {}
    if isinstance(error, KafkaError):
        return _describe_kafka(error)
    if isinstance(error, OSError):
        return REFUSED, f"{error.filename}: {error.strerror}" if error.filename else str(error), {}
    return REFUSED, f"this is a bug: {type(error).__name__}: {error}; MAINSTEM_DEBUG=1 shows where", {}


def _describe_kafka(error: KafkaError) -> tuple[int, str, dict[str, Any]]:
    more: dict[str, Any] = {
        "error": error.code.name if error.code is not None else type(error).__name__,
        "retriable": error.retriable,
    }
    for name in ("broker", "topic", "partition"):
        if getattr(error, name) is not None:
            more[name] = getattr(error, name)
    # An admin that was asked about several things raises the first error and notes the others.
    others = [note.removeprefix("also: ") for note in getattr(error, "__notes__", ())]
    return _code(error), "\n".join([_sentence(error), *others]), more


def _code(error: KafkaError) -> int:
    from mainstem.client import errors

    if isinstance(error, (ConnectionError, TimeoutError)):
        return UNREACHABLE
    not_there = (
        errors.UnknownTopicOrPartitionError,
        errors.GroupIdNotFoundError,
        errors.TransactionalIdNotFoundError,
        errors.ResourceNotFoundError,
        errors.UnknownTopicIdError,
    )
    return NOT_FOUND if isinstance(error, not_there) else REFUSED


def _sentence(error: KafkaError) -> str:
    """What happens most often in words that say what to do; all else as the client puts it."""
    from mainstem.client import errors

    match error:
        case errors.NoBrokersAvailableError():
            return (
                f"{error.message}. Is the broker running? `mainstem up` starts one here; "
                "--bootstrap or MAINSTEM_BOOTSTRAP names another"
            )
        case errors.UnknownTopicOrPartitionError() if error.topic is not None:
            if error.partition is not None:
                return f"topic {error.topic} has no partition {error.partition}"
            return f"there is no topic {error.topic}"
        case errors.TopicExistsError():
            return f"topic {error.topic} exists already; --if-not-exists lets that pass"
        case errors.GroupIdNotFoundError():
            said = error.message.rstrip(".")
            return f"there is no {said}" if said.startswith("group ") else said or str(error)
        case errors.GroupNotEmptyError() | errors.UnknownMemberIdError():
            return f"{error.message or 'the group'} has members; stop its consumers first"
        case errors.TransactionalIdNotFoundError():
            return f"there is no {error.message}" if error.message.startswith("transactional") else str(error)
    return str(error)
