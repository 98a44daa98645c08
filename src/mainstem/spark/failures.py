"""What Spark raises, as the one sentence in it that is for a person.

Spark wraps what went wrong in Python into its own words, with a traceback of Python and often one of Java around it.
What our code raised in there is already a sentence that says what to do; of Spark's own errors the text before the
state code is.
"""

from __future__ import annotations

import re
from typing import Final

_RAISED: Final = re.compile(
    r"^(?:(?:mainstem\.[\w.]+\.)?(?!UnboundLocalError)\w+Error|pyspark\.errors\.[\w.]+): (\S.*)$", re.MULTILINE
)
"""The last line of a traceback, where it is ours, Python's own, or Spark's in a function that it has called."""
# Where the reader of a stream could not be made, Spark's runner stumbles over its own variable besides.

_TRACEBACK: Final = "Traceback (most recent call last)"
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STREAM_FAILED: Final = re.compile(r"^Query \[id = [^\]]*\] terminated with exception:\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")


def sentence(error: BaseException) -> str | None:
    """None where it is not Spark that raised it: then nothing is known to be the user's to mend."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    raised = _RAISED.findall(text) if _TRACEBACK in text else []
    if raised:
        return _STATE.split(_CONDITION.sub("", raised[-1]))[0].strip()
    for wrapping in (_CONDITION, _STREAM_FAILED, _CONDITION):
        text = wrapping.sub("", text.strip(), count=1)
    return _STATE.split(text)[0].split("\n\n")[0].strip() or type(error).__name__
