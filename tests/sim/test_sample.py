"""A sample of simulated runs for every `make test`; `make test-sim` runs as many as one likes.

They run on the compiled build where there is one, in a quarter of the time: a seed is the same run on both. Each test
runs some of the seeds. The one that finds all of them run looks whether every fault and every rare branch was among
them, as it would be asked of a campaign of that size.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from mainstem.sim.__main__ import report
from mainstem.sim.expected import SEEDS_MIN, never_happened
from mainstem.sim.world import run_seed
from tests.support.builds import is_fastest

pytestmark = pytest.mark.skipif(not is_fastest(), reason="test_replay says that both builds do the same")

SAMPLE = 200
SLICE = 10


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Where all processes of a test run note what they have counted."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "counted"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("first", range(0, SAMPLE, SLICE))
def test_no_promise_is_broken_whatever_goes_wrong(first: int, counted: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + SLICE):
        result = run_seed(seed)
        assert result.violation is None, report(result)
        counts += result.counts
    assert counts["acknowledged"] > 100 * SLICE, "hardly anything was done"
    part = counted / f"{first}.part"
    part.write_text(json.dumps(counts))
    part.rename(counted / f"{first}.json")
    done = [json.loads(path.read_text()) for path in counted.glob("*.json")]
    if len(done) == SAMPLE // SLICE:
        assert never_happened(sum(map(Counter, done), Counter()), SAMPLE) == []


def test_the_sample_is_large_enough_to_be_asked_for_what_happens_often() -> None:
    assert SAMPLE >= SEEDS_MIN
