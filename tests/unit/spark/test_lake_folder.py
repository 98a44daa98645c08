"""What a lake's folder lets happen to it: one topic, one shape, one query, one process at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from mainstem.spark.pipelines import lake, lake_folder, lake_lists
from mainstem.spark.pipelines.lake_folder import (
    Lock,
    check_names,
    check_query,
    claim,
    day_column,
    landed_schema,
    local_folder,
)


def fields(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in {**kinds, "_offset": LongType()}.items()])


def plan_a_batch(root: Path) -> None:
    (root / lake_folder.CHECKPOINT / "offsets").mkdir(parents=True)
    (root / lake_folder.CHECKPOINT / "offsets" / "0").touch()


def test_a_lake_keeps_its_topic_and_the_types_of_its_fields(tmp_path: Path) -> None:
    claim(tmp_path, "order", fields(id=LongType()))
    claim(tmp_path, "orders", fields(id=LongType()))  # the first was misspelt, and nothing came of it
    plan_a_batch(tmp_path)
    with pytest.raises(ValueError, match="is a lake of orders; give payments a folder of its own"):
        claim(tmp_path, "payments", fields(id=LongType()))
    with pytest.raises(ValueError, match=r"schema: id is long in .* and string now; a field keeps its type"):
        claim(tmp_path, "orders", fields(id=StringType()))
    claim(tmp_path, "orders", fields(amount=DoubleType()))
    assert landed_schema(tmp_path).names == ["id", "_offset", "amount"]
    with pytest.raises(ValueError, match="schema: id is long"):
        claim(tmp_path, "orders", fields(id=StringType(), amount=DoubleType()))
    as_they_are = StructType([StructField("value", StringType()), StructField("offset", LongType())])
    with pytest.raises(ValueError, match="has the fields of its values; a lake has one shape"):
        claim(tmp_path, "orders", as_they_are)


def test_a_field_that_would_give_the_folders_of_days_another_name_is_refused(tmp_path: Path) -> None:
    """Spark reads no table with folders `date=…` and `_date=…` beside each other."""
    claim(tmp_path, "orders", fields(id=LongType()))
    plan_a_batch(tmp_path)
    with pytest.raises(ValueError, match=r"schema: days are folders date=… in .*, and would be _date=… now"):
        claim(tmp_path, "orders", fields(id=LongType(), Date=StringType()))
    claim(tmp_path, "orders", fields(id=LongType(), dated=StringType()))


@pytest.mark.parametrize("kind", [DoubleType(), StringType()], ids=["same type", "another"])
def test_a_later_field_that_spark_does_not_tell_from_one_that_is_there_is_refused(
    tmp_path: Path, kind: DataType
) -> None:
    """Of another type it would make the lake unreadable; of the same, two fields of the values would become one."""
    claim(tmp_path, "orders", fields(Amount=DoubleType(), of=fields(Price=DoubleType())))
    plan_a_batch(tmp_path)
    with pytest.raises(ValueError, match=r"schema: Amount is a field in .*, from which Spark does not tell amount; "):
        claim(tmp_path, "orders", fields(amount=kind))
    with pytest.raises(ValueError, match=r"schema: of is .*; a field keeps its type"):
        claim(tmp_path, "orders", fields(of=fields(price=kind)))
    assert landed_schema(tmp_path).names == ["Amount", "of", "_offset"]
    claim(tmp_path, "orders", fields(Amount=DoubleType(), price=kind))


@pytest.mark.parametrize(
    ("columns", "day"),
    [
        (["id"], "date"),
        (["id", "_date"], "date"),
        (["id", "Date"], "_date"),
        (["id", "date", "_date"], "__date"),
        (["Date", "_DATE", "__date"], "___date"),
    ],
)
def test_the_day_takes_no_name_that_a_field_has(columns: list[str], day: str) -> None:
    """What the value has there would be replaced without a word."""
    assert day_column(columns) == day


def test_names_that_spark_does_not_tell_apart_are_refused() -> None:
    check_names(fields(id=LongType(), date=StringType()))
    with pytest.raises(ValueError, match="schema: Spark does not tell ID from id; name only one of the two"):
        check_names(fields(id=LongType(), ID=LongType()))
    inner = fields(a=LongType(), A=LongType())
    with pytest.raises(ValueError, match="does not tell A from a"):
        check_names(fields(items=ArrayType(inner)))
    with pytest.raises(ValueError, match="schema: _Corrupt is a column of the record's own in a lake"):
        check_names(StructType([StructField("_Corrupt", StringType())]), lake.OWN)


def test_batches_of_a_checkpoint_that_is_gone_are_not_counted_anew(tmp_path: Path) -> None:
    check_query(tmp_path)
    metadata = tmp_path / lake_folder.CHECKPOINT / "metadata"
    metadata.parent.mkdir()
    metadata.write_text(json.dumps({"id": "q"}))
    batch = tmp_path / lake_lists.BATCHES / "000000000000.json"
    batch.parent.mkdir()
    batch.write_text(json.dumps({"batch": 0, "query": "q", "files": {}}))
    check_query(tmp_path)
    metadata.unlink()
    with pytest.raises(ValueError, match=r"was landed by a query whose checkpoint, .*, is gone or another's"):
        check_query(tmp_path)


def test_one_process_at_a_time_works_on_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_folder, "LOCK_WAIT_S", 0.1)
    held = "import sys, pathlib; from mainstem.spark.pipelines.lake_folder import Lock\n"
    held += "lock = Lock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="another pipeline works on"):
            Lock(tmp_path)
        other.kill()
    Lock(tmp_path).release()


@pytest.mark.parametrize("given", ["hdfs://name/lake", "s3a://bucket/lake", "file:///lake"])
def test_an_address_is_not_taken_for_a_folder(given: str) -> None:
    """It would become a folder of that name here, and on every worker another."""
    with pytest.raises(ValueError, match="path: must be a folder of the file system"):
        lake.Lake("127.0.0.1:9092", "orders", Path(given))
    assert local_folder(Path("some:name"), "path") == Path.cwd() / "some:name"


def test_names_of_fields_may_be_anything() -> None:
    kind = ArrayType(StructType([StructField("a-b", LongType()), StructField("c`d e", StringType())]))
    assert lake.ddl(kind) == "array<struct<`a-b`: bigint, `c``d e`: string>>"
