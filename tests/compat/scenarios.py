"""What the scenarios of this folder share: names that nobody else uses, and waiting with a bound."""

import itertools
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_numbers = itertools.count()


def new_name(what: str) -> str:
    return f"{what}-{os.getpid()}-{next(_numbers)}"


def eventually(look: Callable[[], T], is_right: Callable[[T], object], timeout_s: float = 30.0) -> T:
    """What `look` gives as soon as it is right; fails the test when that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if is_right(found):
            return found
        assert time.monotonic() < deadline, f"still not right after {timeout_s:.0f} s: {found}"
        time.sleep(0.1)
