"""Which schemas the source takes."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from mainstem.spark.options import source_options
from mainstem.spark.schema import wanted

OPTIONS = source_options(
    {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:9092", "valueFormat": "json"}, streaming=False
)


@pytest.mark.parametrize(
    ("name", "kind", "nullable", "told"),
    [
        ("id", LongType(), False, "column id"),
        ("_offset", LongType(), False, "column _offset"),
        ("_corrupt", StringType(), False, "column _corrupt"),
        ("o", StructType([StructField("x", LongType(), False)]), True, "column o.x"),
        ("ids", ArrayType(LongType(), containsNull=False), True, "what is in column ids"),
        (
            "list",
            ArrayType(StructType([StructField("x", ArrayType(LongType(), containsNull=False))])),
            True,
            "what is in column list.x",
        ),
    ],
)
def test_a_field_of_a_value_that_may_not_be_null_is_refused(
    name: str, kind: DataType, nullable: bool, told: str
) -> None:
    schema = StructType([StructField("id2", LongType()), StructField(name, kind, nullable)])
    with pytest.raises(ValueError, match=f"schema: {told} must be nullable; Spark accepts nothing else of a source"):
        wanted(schema, OPTIONS)
