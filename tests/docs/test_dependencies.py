"""Whatever is installed with us, or to build and to test us, has a line that says why it and not a rival."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def named_in(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", each, maxsplit=1)[0] for each in requirements} - {"mainstem"}


def test_every_dependency_has_a_line_that_says_why() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = named_in(project["build-system"]["requires"]) | named_in(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted |= named_in(extra)
    rows = [line for line in (ROOT / "docs/dependencies.md").read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert len(wanted) > 20
    assert wanted - told == set()
