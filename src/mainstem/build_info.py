"""Which of the two builds is running: native code made by mypyc, or the same source interpreted."""

from mainstem.protocol import batch


def is_compiled() -> bool:
    """Whether the hot modules that were imported are the compiled ones."""
    return not (batch.__file__ or "").endswith(".py")


def build_name() -> str:
    return "compiled" if is_compiled() else "interpreted"
