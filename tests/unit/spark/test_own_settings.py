"""What Spark has been told past the program."""

from pathlib import Path

import pytest

from mainstem.spark.own_settings import has_collector, in_arguments, in_file


def test_a_file_of_defaults_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    path.write_bytes(
        b"# spark.master local\n\nspark.master   spark://host:7077\nspark.app.name=mine\n"
        b" spark.a.b : c=d e \nother x\n\xff\n"
    )
    assert in_file(path) == {"spark.master": "spark://host:7077", "spark.app.name": "mine", "spark.a.b": "c=d e"}
    assert in_file(tmp_path / "nothing") == {}


def test_arguments_are_read_as_spark_submit_reads_them() -> None:
    said = "--master local[1] --conf spark.a=b=c -c 'spark.d=e f' --conf=spark.g=h --driver-memory 1g pyspark-shell"
    assert in_arguments(said) == {"spark.master": "local[1]", "spark.a": "b=c", "spark.d": "e f", "spark.g": "h"}
    assert in_arguments("--driver-java-options -Dmine=1 --name") == {
        "spark.driver.extraJavaOptions": "-Dmine=1",
        "spark.app.name": "",
    }
    assert in_arguments("") == {}


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ("", "", False),
        ("-XX:+UseZGC", "", True),
        ("", "-Xmx1g -XX:+UseG1GC", True),
        ("-XX:+UseStringDeduplication", "-XX:-UseG1GC", False),
    ],
)
def test_a_collector_that_somebody_has_chosen_is_noticed(
    monkeypatch: pytest.MonkeyPatch, options: str, variable: str, expected: bool
) -> None:
    """Java does not start with two."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", variable)
    assert has_collector({"spark.driver.defaultJavaOptions": options}) is expected
