"""What a field is taken for where Spark has seen a sample of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mainstem.spark.pipelines.sampled import settled_on, unreadable

TEXT, TIME = StringType(), TimestampType()


def struct(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def values(*fields: Any) -> list[bytes]:
    return [json.dumps({"f": field}).encode() for field in fields]


@pytest.mark.parametrize(
    "text", ["10115", "2024", "8001", "0049", "123456", "12:30", "12:30:00", "2024-1", "2024-01", "12:30:00Z", ""]
)
def test_what_spark_takes_for_a_time_and_we_do_not_is_text(text: str) -> None:
    assert settled_on(values(text), struct(f=TIME)) == struct(f=TEXT)
    assert settled_on(values("2026-01-02T03:04:05Z", text), struct(f=TIME)) == struct(f=TEXT)


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123456", "2026-01-02T03:04:05.123456789+02:00", "2026-01-02"],
)
def test_what_is_read_as_a_time_is_one(text: str) -> None:
    assert settled_on(values(text, None), struct(f=TIME)) == struct(f=TIME)
    # A value that is bad whatever the field is says nothing of it.
    assert settled_on([b"broken", *values(text, 1)], struct(f=TIME)) == struct(f=TIME)


def test_each_field_is_looked_at_by_itself_however_deep_it_is() -> None:
    inner = {"zip": "10115", "at": "2026-01-02T03:04:05Z"}
    sample = values({**inner, "all": [inner, {"at": None}], "at_all": [[inner["at"]], []], "zips": ["2026-01-02", "1"]})
    found = struct(zip=TIME, at=TIME)
    given = struct(zip=TIME, at=TIME, all=ArrayType(found), at_all=ArrayType(ArrayType(TIME)), zips=ArrayType(TIME))
    right = struct(zip=TEXT, at=TIME)
    expected = struct(zip=TEXT, at=TIME, all=ArrayType(right), at_all=ArrayType(ArrayType(TIME)), zips=ArrayType(TEXT))
    assert settled_on(sample, struct(f=given)) == struct(f=expected)
    assert unreadable(sample, struct(f=given)) == {0}
    assert unreadable(sample, struct(f=expected)) == set()


def test_other_types_stay_what_they_are() -> None:
    schema = struct(a=LongType(), b=DoubleType(), c=BooleanType(), d=TEXT, e=ArrayType(LongType()))
    sample = [b'{"a": 1, "b": 1.5, "c": true, "d": "x", "e": [1]}', b'{"b": 2}', b'{"a": 1.5}', b"{}", b"[1"]
    assert settled_on(sample, schema) == schema
    assert unreadable(sample, schema) == {2, 4}
