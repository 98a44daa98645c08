"""`docs/track-record.md` has every bug that is put back, how many seeds it is allowed, and the command to find it."""

import re
from pathlib import Path

from tests.mutations.historical import MUTATIONS

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
