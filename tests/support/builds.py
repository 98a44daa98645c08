"""Which build a long test runs in, where one of the two proves as much as both."""

from pathlib import Path

from mainstem.build_info import build_name

_COMPILED = Path(__file__).parents[2] / "build" / "compiled"


def is_fastest() -> bool:
    """Whether this is the compiled build, or none was made: a C compiler or Python's headers may be missing."""
    return build_name() == "compiled" or not any(_COMPILED.glob("**/*.so"))
