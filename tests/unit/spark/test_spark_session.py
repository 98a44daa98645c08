"""What is missing for Spark is said in one sentence that tells what to install."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from mainstem.cli.main import main
from mainstem.spark import spark_session


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))


@pytest.mark.usefixtures("without_java")
def test_missing_java_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(
        spark_session.NoSparkError, match="Java is not installed: Spark needs Java 17 or later, as in apt"
    ):
        spark_session.session()
    assert main(["pipeline", "lake", "orders", str(tmp_path)]) == 2
    assert "Java is not installed: Spark needs Java 17" in capsys.readouterr().err


@pytest.mark.usefixtures("without_java")
@pytest.mark.parametrize(("said", "number"), [('openjdk version "11.0.2" 2019-01-15', 11), ('version "1.8.0_402"', 8)])
def test_a_java_that_is_too_old_is_told(tmp_path: Path, said: str, number: int) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    with pytest.raises(spark_session.NoSparkError, match=rf"Java {number} \(.*java\) is too old: Spark needs Java 17"):
        spark_session.session()


@pytest.mark.parametrize("is_file", [False, True], ids=["missing", "not to be run"])
def test_a_java_home_without_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_file: bool) -> None:
    """Spark's scripts take no other, whatever is on PATH."""
    (tmp_path / "java").write_text("#!/bin/sh\necho 'version \"17.0.1\"' >&2\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    home = tmp_path / "jdk"
    monkeypatch.setenv("JAVA_HOME", str(home))
    if is_file:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch(0o644)
    assert spark_session.missing() == (
        f"JAVA_HOME is {home}, where there is no bin/java to run, and Spark takes no other: set it to the folder of "
        "Java 17 or later, or unset it for the java that is on PATH"
    )
    monkeypatch.delenv("JAVA_HOME")
    assert spark_session.missing() is None


@pytest.mark.parametrize("master", ["nonsense", "127.0.0.1:7077", "local[", "spark://"])
def test_a_master_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path, master: str) -> None:
    assert main(["pipeline", "lake", "orders", str(tmp_path), "--master", master]) == 2
    assert f"--master is local[*], spark://host:7077, yarn or k8s://…; it is {master}" in capsys.readouterr().err


def test_the_settings_are_shown_with_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "settings"]) == 0
    shown = capsys.readouterr().out
    for key, (value, why) in spark_session.SETTINGS.items():
        assert f"{key} = {value}\n    {why}" in shown


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    hide(monkeypatch, package)
    with pytest.raises(spark_session.NoSparkError, match=r"is not installed: pip install 'mainstem\[spark\]'"):
        spark_session.session()


def test_a_pyspark_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.1.4")
    with pytest.raises(spark_session.NoSparkError, match=r"PySpark 4\.1\.4 is too old, 4\.2 or later is needed: pip"):
        spark_session.session()
