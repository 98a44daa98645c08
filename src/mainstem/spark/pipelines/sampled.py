"""A schema that Spark has taken from a sample of JSON values, made one by which our own decoder reads them.

Spark takes more for a time than the decoder does: `10115`, which is a year to it, or `12:30`, which is today. Landed by
such a schema, every value would be a bad one. So a field is what Spark takes it for where the decoder reads all that it
reads of it as text, and text otherwise; fields of fields and of arrays likewise, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.spark.values import FORMATS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Question = Callable[["DataType"], set[int]]
"""Which values cannot be read where the field in question has a type."""


def unreadable(values: list[bytes], schema: StructType) -> set[int]:
    """The values that are bad ones by a schema."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    _, bad = FORMATS["json"](pa.array(values, pa.binary()), to_arrow_schema(schema, timezone="UTC"))
    return set(bad)


def settled_on(values: list[bytes], schema: StructType) -> StructType:
    return _settled_fields(schema, lambda whole: unreadable(values, whole))


def _settled_fields(schema: StructType, bad: Callable[[StructType], set[int]]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    def settled(field: StructField) -> StructField:
        def bad_with(kind: DataType) -> set[int]:
            return bad(StructType([StructField(field.name, kind)]))

        return StructField(field.name, _settled(field.dataType, bad_with))

    return StructType([settled(field) for field in schema.fields])


def _settled(kind: DataType, bad: Question) -> DataType:
    from pyspark.sql.types import ArrayType, StringType, StructType

    if isinstance(kind, StructType):
        return _settled_fields(kind, bad)
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType, lambda inner: bad(ArrayType(inner))))
    wrong = bad(kind)
    # What is no text either says nothing of the type: it is a bad value whichever it is.
    return StringType() if wrong and wrong - bad(StringType()) else kind
