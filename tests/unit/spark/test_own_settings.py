"""What Spark has been told past the program."""

from pathlib import Path

import pytest

from mainstem.spark.own_settings import GATEWAY, files_in_arguments, has_collector, in_arguments, in_file, own_settings


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
    ("said", "expected"),
    [
        ("", (None, False)),
        ("--conf spark.a=b --properties-file 'a b' pyspark-shell", (Path("a b"), False)),
        ("--properties-file=a --load-spark-defaults --properties-file=/b", (Path("/b"), True)),
    ],
)
def test_a_file_of_properties_is_found_in_the_arguments(said: str, expected: tuple[Path | None, bool]) -> None:
    assert files_in_arguments(said) == expected


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ("", {"spark.a": "argument", "spark.b": "file"}),
        ("--load-spark-defaults", {"spark.a": "argument", "spark.b": "file", "spark.c": "default"}),
    ],
)
def test_a_file_that_is_named_stands_in_the_place_of_the_defaults_unless_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str, expected: dict[str, str]
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a default\nspark.b default\nspark.c default\n")
    (tmp_path / "mine.conf").write_text("spark.a file\nspark.b file\n")
    monkeypatch.delenv(GATEWAY, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", f"--properties-file {tmp_path / 'mine.conf'} --conf spark.a=argument {switch}"
    )
    assert own_settings() == expected


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
