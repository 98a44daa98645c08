"""Of what Spark raises, a person gets the sentence."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import AnalysisException, PySparkException

from mainstem.spark.failures import sentence

PLANNED = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source mainstem: Traceback (most recent call last):
  File "worker.py", line 1, in main
    reader.partitions()
ValueError: subscribe: there is no topic nope; create it, or correct the name
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.AnalysisException
"""
IN_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):
  File "fetching.py", line 9, in read
mainstem.client.errors.OffsetOutOfRangeError: fetch: the offset is not there

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "fetching.py", line 12, in read
mainstem.spark.bounds.DataLossError: t-0: records from offset 2 on are wanted, but the log begins at 5

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException
 SQLSTATE: XXKST"""
STUMBLED = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 250, in main
    reader = data_source.streamReader(schema=schema)
ValueError: schema: m is map<string,string>, which valueFormat=json does not read

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 295, in main
    reader.stop()
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
 SQLSTATE: 38000"""
IN_A_FUNCTION = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the \
Python Proxy. Return Message: Traceback (most recent call last):
  File "lake.py", line 9, in land
    some.write.parquet(path)
pyspark.errors.exceptions.captured.AnalysisException: [COLUMN_ALREADY_EXISTS] The column `id` already exists. Choose \
another name or rename the existing column. SQLSTATE: 42711

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
 SQLSTATE: XXKST"""
REASON = "No space left on device"
FULL = f"java.io.IOException: {REASON}"
NOWHERE = f"{REASON}: Spark's own files have no room, in spark.local.dir or in the checkpoint"
LEFT_OUT = "\n\tat py4j.ClientServerConnection.run(ClientServerConnection.java:108)\n"
WHICH = "\n=== Streaming Query ===\nIdentifier: lake orders [id = 1, runId = 2]\n\nLogical Plan:\n~Write"
WRITTEN_IN_A_FUNCTION = f"""An exception was raised by the Python Proxy. Return Message: Traceback (most \
recent call last):
  File "lake.py", line 9, in land
    some.write.parquet(path)
py4j.protocol.Py4JJavaError: An error occurred while calling o134.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/rows. \
SQLSTATE: 58030{LEFT_OUT}Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to \
close resource{LEFT_OUT}Caused by: org.apache.hadoop.fs.FSError: {FULL}\n\t... 29 more
Caused by: {FULL}{LEFT_OUT}\t... 41 more

{WHICH}"""
IN_A_STAGE = f"""An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 37 in stage 30.0 failed 1 times, most recent \
failure: Lost task 37.0 in stage 30.0 (TID 656) (192.0.2.2 executor driver): {FULL}{LEFT_OUT}
Driver stacktrace:{LEFT_OUT}Caused by: {FULL}{LEFT_OUT}"""
OF_ANOTHER_LIBRARY = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised \
by the Python Proxy. Return Message: Traceback (most recent call last):
  File "lake.py", line 9, in land
    _row_count(file)
pyarrow.lib.ArrowInvalid: Parquet file size is 0 bytes{WHICH}"""
OF_SPARK = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `amunt` cannot be resolved. Did you mean `amount`? \
SQLSTATE: 42703; line 1 pos 7;
'Project ['amunt]
+- SubqueryAlias input
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PySparkException(PLANNED), "subscribe: there is no topic nope; create it, or correct the name"),
        (PySparkException(IN_A_TASK), "t-0: records from offset 2 on are wanted, but the log begins at 5"),
        (PySparkException(STUMBLED), "schema: m is map<string,string>, which valueFormat=json does not read"),
        (
            PySparkException(IN_A_FUNCTION),
            "The column `id` already exists. Choose another name or rename the existing column.",
        ),
        (PySparkException(WRITTEN_IN_A_FUNCTION), "Task failed while writing rows to file:/lake/rows: " + REASON),
        (PySparkException(f"An error occurred while calling o1.start.\n: {FULL}{LEFT_OUT}Caused by: {FULL}"), NOWHERE),
        (PySparkException(IN_A_STAGE), NOWHERE),
        (PySparkException(FULL + WHICH), NOWHERE),
        (PySparkException(OF_ANOTHER_LIBRARY), "pyarrow.lib.ArrowInvalid: Parquet file size is 0 bytes"),
        (AnalysisException(OF_SPARK), "A column `amunt` cannot be resolved. Did you mean `amount`?"),
        (
            PySparkException(
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [X.Y] no. SQLSTATE: 1"
            ),
            "no.",
        ),
    ],
)
def test_the_sentence_is_what_our_code_or_spark_says(error: Exception, told: str) -> None:
    assert sentence(error) == told


def test_what_spark_did_not_raise_is_left_alone() -> None:
    assert sentence(RuntimeError("a bug")) is None
