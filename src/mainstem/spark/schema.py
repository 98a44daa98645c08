"""The columns of the source and the sink: their Spark types, and which of them a user's schema asks for.

Without a schema there are Spark's seven columns, and `headers` with `includeHeaders`. A schema that names fewer of them
prunes the rest before they are built: Spark itself prunes nothing for a Python source.

With `valueFormat` the schema describes what is in the value. The record's own columns then have an underscore in front
(`_key`, `_offset`, …), so that no field of a value can be taken for one of them, and `_corrupt` is the text of a value
that could not be read.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mainstem.protocol.columns import FIELDS
from mainstem.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
_READABLE: Final = (
    BinaryType,
    BooleanType,
    DateType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
CORRUPT: Final = "_corrupt"
META_PREFIX: Final = "_"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader has to build: `kafka` columns by our names, and the value's fields where it is decoded."""

    names: tuple[str, ...]
    """The columns of the DataFrame, in order."""
    kafka: tuple[str, ...]
    """What each is made from: a name of `FIELDS`, or empty for a field of the value or the corrupt column."""
    schema: StructType
    value_schema: StructType | None = None

    def own_columns(self) -> list[str]:
        """Those that are the record's own under the record's own name: what a filter can be understood on."""
        return [source for name, source in zip(self.names, self.kafka, strict=True) if name == source]

    def arrow_schema(self) -> "pa.Schema":
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")


def default_schema(options: SourceOptions) -> StructType:
    if options.value_format == "json":
        raise ValueError("valueFormat: json needs a schema; give one with .schema(...)")
    fields = [name for name in FIELDS if name != "headers" or options.include_headers]
    types = {**TYPES, "value": StringType()} if options.value_format == "string" else TYPES
    return StructType([StructField(name, types[name]) for name in fields])


def wanted(schema: StructType, options: SourceOptions) -> Wanted:
    """Checks a schema, the user's or the default, and says what to build for it."""
    if options.value_format == "json":
        return wanted_of_values(schema)
    textual = options.value_format == "string"
    for column in schema.fields:
        known = TYPES.get(column.name)
        if known is None:
            raise ValueError(
                f"schema: the source has no column {column.name}; it has {', '.join(FIELDS)}"
                + ("" if textual else ", or with valueFormat=json the fields of the value")
            )
        is_text = textual and column.name in ("key", "value") and isinstance(column.dataType, StringType)
        if column.dataType != known and not is_text:
            raise ValueError(
                f"schema: column {column.name} is {known.simpleString()}; "
                f"{column.dataType.simpleString()} cannot be read from it"
            )
        _check_nullable(f"column {column.name}", column.nullable)
    return Wanted(tuple(schema.names), tuple(schema.names), schema)


def _check_nullable(what: str, is_nullable: bool) -> None:
    """Spark believes that there is no null, and takes one for 0 or fails in a place that says nothing."""
    if not is_nullable:
        raise ValueError(f"schema: {what} must be nullable; Spark accepts nothing else of a source")


def _check_readable(column: str, kind: DataType) -> None:
    """Whatever JSON there is, a column of another type would be null and its value bad; and there may be no value."""
    if isinstance(kind, ArrayType):
        _check_nullable(f"what is in column {column}", kind.containsNull)
        _check_readable(column, kind.elementType)
    elif isinstance(kind, StructType):
        for each in kind.fields:
            _check_nullable(f"column {column}.{each.name}", each.nullable)
            _check_readable(f"{column}.{each.name}", each.dataType)
    elif not isinstance(kind, _READABLE):
        raise ValueError(
            f"schema: {column} is {kind.simpleString()}, which valueFormat=json does not read; name the fields of an "
            "object in a struct, or read the value with valueFormat=string and Spark's from_json"
        )


def wanted_of_values(schema: StructType) -> Wanted:
    kafka: list[str] = []
    values: list[StructField] = []
    for column in schema.fields:
        own = column.name.removeprefix(META_PREFIX)
        _check_nullable(f"column {column.name}", column.nullable)
        if column.name == CORRUPT:
            if not isinstance(column.dataType, StringType):
                raise ValueError(f"schema: {CORRUPT} is a string; it is {column.dataType.simpleString()}")
            kafka.append("")
        elif column.name.startswith(META_PREFIX) and own in TYPES:
            if column.dataType != TYPES[own]:
                raise ValueError(
                    f"schema: column {column.name} is {TYPES[own].simpleString()}; "
                    f"{column.dataType.simpleString()} cannot be read from it"
                )
            kafka.append(own)
        else:
            _check_readable(column.name, column.dataType)
            kafka.append("")
            values.append(column)
    if not values:
        raise ValueError("schema: names no field of the value, which valueFormat=json is to read")
    return Wanted(tuple(schema.names), tuple(kafka), schema, StructType(values))
