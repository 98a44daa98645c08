"""Decoded records to the Arrow batches of a DataFrame: the columns that are wanted, in order, of Spark's types."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType

from mainstem.protocol.columns import Columns
from mainstem.spark.offsets import name
from mainstem.spark.schema import CORRUPT, Wanted
from mainstem.spark.splits import Range
from mainstem.spark.values import FORMATS, decode_string

if TYPE_CHECKING:
    import pyarrow as pa


class RowMaker:
    def __init__(self, wanted: Wanted, value_format: str | None) -> None:
        self._wanted = wanted
        self._schema = wanted.arrow_schema()
        self._format = value_format
        self._value_schema: Any = None
        if wanted.value_schema is not None:
            from pyspark.sql.pandas.types import to_arrow_schema

            self._value_schema = to_arrow_schema(wanted.value_schema, timezone="UTC")

    def __call__(self, columns: Columns, found: Range) -> "pa.RecordBatch":
        if self._value_schema is not None:
            return self._with_values(columns, found)
        batch = columns.to_arrow(self._wanted.kafka, found.topic, found.partition)
        if self._format != "string":
            return batch
        import pyarrow as pa

        arrays = [
            decode_string(array) if isinstance(field.dataType, StringType) and field.name != "topic" else array
            for array, field in zip(batch.columns, self._wanted.schema.fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _with_values(self, columns: Columns, found: Range) -> "pa.RecordBatch":
        import pyarrow as pa

        kafka = tuple(dict.fromkeys(["value", *(field for field in self._wanted.kafka if field), "offset"]))
        own = columns.to_arrow(kafka, found.topic, found.partition)
        decoded, bad = FORMATS[self._format or "json"](own.column("value"), self._value_schema)
        if bad and CORRUPT not in self._wanted.names:
            offset = own.column("offset")[bad[0]].as_py()
            raise UnreadableValueError(name(found.where), offset, len(bad), own.column("value")[bad[0]].as_py())
        values = dict(zip(self._value_schema.names, decoded, strict=True))
        arrays = []
        for column, source in zip(self._wanted.names, self._wanted.kafka, strict=True):
            if source:
                arrays.append(own.column(source))
            elif column == CORRUPT:
                arrays.append(_corrupt(own.column("value"), bad))
            else:
                arrays.append(values[column])
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class UnreadableValueError(Exception):
    """A value that cannot be read, in a query that was not told where to put such."""

    def __init__(self, partition: str, offset: int, more: int, value: bytes) -> None:
        self.arguments = (partition, offset, more, value)
        shown = value[:80].decode("utf-8", "replace")
        super().__init__(
            f"the value at offset {offset} of {partition} does not fit the schema: {shown!r}. Add a column "
            f"`{CORRUPT} string` to the schema to get such values instead of this error"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return UnreadableValueError, self.arguments


def _corrupt(values: "pa.Array", bad: list[int]) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    if not bad:
        return pa.nulls(len(values), pa.string())
    texts = decode_string(values.take(pa.array(bad, pa.int64())))
    where = np.full(len(values), -1, np.int64)
    where[np.array(bad, np.int64)] = np.arange(len(bad))
    return texts.take(pa.array(where, mask=where < 0))
