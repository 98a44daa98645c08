"""What Spark raises, as the one sentence in it that is for a person.

Spark wraps what went wrong in Python into its own words, with a traceback of Python and often one of Java around it.
What our code raised in there is already a sentence that says what to do; of Spark's own errors the text before the
state code is. What Java raised is told with its innermost cause: the outermost says where, and only that one why.
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
_FROM_JAVA: Final = re.compile(r"An error occurred while calling [\w.:$]+\.\n: ")
_CAUSED_BY: Final = "\nCaused by: "
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STREAM_FAILED: Final = re.compile(r"^Query \[id = [^\]]*\] terminated with exception:\s*")
_STAGE_FAILED: Final = re.compile(r"^Job aborted due to stage failure: .* \(TID \d+\) \(.*?\): ")
_CLASSES: Final = re.compile(r"^(?:(?:\w+\.)+[\w$]*(?:Error|Exception): )+")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_AFTERWARDS: Final = re.compile(r"\n\n|\n\tat |\n\t\.\.\. |\n=== Streaming Query ===")
"""What no sentence goes on after: a plan, a stack, or which query it was."""

_FULL: Final = "No space left on device"


def sentence(error: BaseException) -> str | None:
    """None where it is not Spark that raised it: then nothing is known to be the user's to mend."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    raised = _RAISED.findall(text) if _TRACEBACK in text else []
    if raised:
        return _STATE.split(_CONDITION.sub("", raised[-1]))[0].strip()
    first, *causes = _FROM_JAVA.split(text)[-1].split(_CAUSED_BY)
    told, cause = _words(first), _words(causes[-1]) if causes else ""
    if cause not in told:
        told = f"{told.rstrip('.')}: {cause}"
    if told == _FULL:  # Java does not say where; of files that are rows Spark does
        told += ": Spark's own files have no room, in spark.local.dir or in the checkpoint"
    return told or type(error).__name__


def _words(text: str) -> str:
    for wrapping in (_CLASSES, _CONDITION, _STREAM_FAILED, _STAGE_FAILED, _CLASSES, _CONDITION):
        text = wrapping.sub("", text.strip(), count=1)
    told = _AFTERWARDS.split(_STATE.split(text)[0])[0].strip()
    return told.splitlines()[-1] if _TRACEBACK in told else told
