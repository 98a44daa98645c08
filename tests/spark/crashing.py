"""A data source that kills the process it runs in at a step that an option names, once for each marker file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mainstem.spark import sink
from mainstem.spark.options import SinkOptions, sink_options
from mainstem.spark.source import MainstemSource


class CrashingSource(MainstemSource):
    """`crashAt` is a step, `crashMarker` a file that is made before the crash, so that there is only one."""

    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = dict(self.options)
        return CrashingSink(schema, sink_options(given), given["crashat"], given["crashmarker"])


class CrashingSink(sink.StreamSink):
    def __init__(self, schema: StructType, options: SinkOptions, step: str, marker: str) -> None:
        super().__init__(schema, options)
        self._crash = Crash(step, marker)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        sink.on_step = self._crash
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        sink.on_step = self._crash
        super().commit(messages, batchId)


class Crash:
    def __init__(self, step: str, marker: str) -> None:
        self._step = step
        self._marker = marker

    def __call__(self, step: str) -> None:
        if step != self._step:
            return
        try:
            os.close(os.open(self._marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
