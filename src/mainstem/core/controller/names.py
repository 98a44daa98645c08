"""Names of topics: which are valid, and which would share a metric's name (KAFKA-2337)."""

from __future__ import annotations

import re
from typing import Final

from mainstem.core.controller.image import ClusterImage
from mainstem.protocol.errors import ErrorCode, RemoteError

NAME_MAX: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"

_VALID: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    if not name:
        raise _invalid("the empty string is not allowed")
    if name in (".", ".."):
        raise _invalid(f"'{name}' is not allowed")
    if len(name) > NAME_MAX:
        raise _invalid(f"the length of '{name}' is longer than the max allowed length {NAME_MAX}")
    if _VALID.fullmatch(name) is None:
        raise _invalid(f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")


def _invalid(why: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def similar_topic(name: str, image: ClusterImage) -> str | None:
    """A topic whose name differs from `name` only by dots and underscores, which metrics do not tell apart."""
    if "." not in name and "_" not in name:
        return None
    return next((other for other in image.similar_names.get(name.replace(".", "_"), ()) if other != name), None)
