"""A data source whose sink meets with an accident at each of some steps, one after the other.

Options: `crashAt` names the steps, `crashMarker` begins the names of files that tell what has happened, `crashHow` says
what happens. The nth accident is armed when the one before it has happened, whichever process or run that was in; with
`crashRun`, which names the run, when that was in another run: processes may outlive the one whose accident it was.

| `crashHow` | at the step |
|---|---|
| `worker` (default) | the Python process is killed |
| `jvm` | the JVM above it is killed, the driver or an executor; at every second step this process lives on |
| `hold` | it waits for a file `…-go`, while the test does something to the broker |
| `slow` | the first attempt at partition 0 waits until another attempt has got as far |
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mainstem.spark import sink
from mainstem.spark.options import SinkOptions, sink_options
from mainstem.spark.source import MainstemSource

HELD_S_MAX = 240.0
POLL_S = 0.02


class CrashingSource(MainstemSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = dict(self.options)
        steps = given["crashat"].split(",")
        crash = Crash(steps, given["crashmarker"], given.get("crashhow", "worker"), given.get("crashrun", ""))
        return CrashingSink(schema, sink_options(given), crash)


class CrashingSink(sink.StreamSink):
    def __init__(self, schema: StructType, options: SinkOptions, crash: Crash) -> None:
        super().__init__(schema, options)
        self._crash = crash

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        sink.on_step = self._crash
        message = super().write(iterator)
        self._crash("written")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        sink.on_step = self._crash
        super().commit(messages, batchId)
        self._crash("committed")


class Crash:
    def __init__(self, steps: list[str], marker: str, how: str, run: str) -> None:
        self._steps = steps
        self._marker = marker
        self._how = how
        self._run = run

    def __call__(self, step: str) -> None:
        self._note_stages_that_run_again(step)
        if self._how == "slow":
            self._wait_for_another_attempt(step)
            return
        nth = next((n for n in range(len(self._steps)) if not os.path.exists(f"{self._marker}-{n}")), None)
        if nth is None or step != self._steps[nth] or self._was_in_this_run(nth - 1):
            return
        if not _make(f"{self._marker}-{nth}", self._run):
            return
        if self._how == "hold":
            wait_for(f"{self._marker}-{nth}-go")
            return
        if self._how == "jvm":
            os.kill(jvm_above(), signal.SIGKILL)
            if nth % 2:
                return  # nobody waits for this process any more, and it does not know
        os.kill(os.getpid(), signal.SIGKILL)

    def _was_in_this_run(self, nth: int) -> bool:
        # A mark without a name is just being made, in this run.
        return nth >= 0 and self._run != "" and Path(f"{self._marker}-{nth}").read_text() in ("", self._run)

    def _note_stages_that_run_again(self, step: str) -> None:
        """Attempts are counted anew in each attempt at a stage, which Python is not told of."""
        task = TaskContext.get()
        if step == "begin-transaction" and task is not None:
            attempt = f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}"
            if not _make(f"{self._marker}-attempt-{attempt}"):
                _make(self._marker + "-stage-retried")

    def _wait_for_another_attempt(self, step: str) -> None:
        task = TaskContext.get()
        if step != self._steps[0] or task is None or task.partitionId() != 0:
            return
        if task.attemptNumber():
            _make(self._marker + "-another")
        elif _make(self._marker + "-first"):
            try:
                wait_for(self._marker + "-another")
            except TimeoutError:
                _make(self._marker + "-gave-up")
                raise


def wait_for(path: str) -> None:
    deadline = time.monotonic() + HELD_S_MAX
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(POLL_S)


def jvm_above() -> int:
    """The nearest process above this one that is Java."""
    pid = os.getpid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise RuntimeError("there is no JVM above this process")


def _make(path: str, content: str = "") -> bool:
    """Whether it was not there before."""
    try:
        with open(path, "x") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True
