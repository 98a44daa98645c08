"""`docs/track-record.md` has every bug that is put back, how many seeds it is allowed, and the command to find it.

And each of them can still be put back: most are looked for in campaigns only, and the code goes on meanwhile.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.build_info import build_name
from tests.mutations.historical import MUTATIONS, Mutation

PAGE = Path(__file__).parents[2] / "docs" / "track-record.md"
ROW = re.compile(r"^\| .* \| (\d+) \| (\d+) \| `BUG=([\w.-]+)` \|$", re.MULTILINE)


def test_the_page_has_each_bug_with_its_seeds_and_its_command() -> None:
    rows = {name: (int(seed), int(allowed)) for seed, allowed, name in ROW.findall(PAGE.read_text())}
    assert {name: allowed for name, (_, allowed) in rows.items()} == {each.name: each.seeds_max for each in MUTATIONS}
    for each in MUTATIONS:
        seed = rows[each.name][0]
        assert seed in range(each.first_seed, each.first_seed + each.seeds_max * each.every, each.every), each.name


def test_no_name_of_a_bug_is_part_of_another() -> None:
    """Or the command of one would run both."""
    names = [each.name for each in MUTATIONS]
    assert not [(one, other) for one in names for other in names if one != other and one in other]


class Fits:
    """What a bug is put back with: notes what could not be called as what it replaces is."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.misfits: list[str] = []

    def setattr(self, target: Any, name: Any, value: Any = None, raising: bool = True) -> None:
        if isinstance(target, str):
            module, _, attribute = target.rpartition(".")
            target, name, value = importlib.import_module(module), attribute, name
        before = getattr(target, name)
        if inspect.isfunction(value) and not fits(value, before):
            self.misfits.append(f"{name}{inspect.signature(value)} for {name}{inspect.signature(before)}")
        self.patch.setattr(target, name, value, raising)


def fits(value: Callable[..., Any], before: Callable[..., Any]) -> bool:
    given = inspect.signature(before).parameters.values()
    positional = [each for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
    needed = [each for each in positional if each.default is each.empty]
    named = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
    try:
        for called in (positional, needed):
            inspect.signature(value).bind(*called, **named)
    except TypeError:
        return False
    return True


@pytest.mark.skipif(build_name() != "interpreted", reason="compiled functions have no signature")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_each_bug_fits_the_code_that_it_is_put_back_into(mutation: Mutation) -> None:
    fitting: Any = Fits()
    try:
        mutation.patch(fitting, lambda: None)
    finally:
        fitting.patch.undo()
    assert not fitting.misfits
