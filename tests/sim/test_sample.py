"""A sample of simulated runs for every `make test`; `make test-sim` runs as many as one likes.

Each test runs some of the seeds. The one that finds all of them run looks whether every fault and every rare branch
was among them, but for those that so few runs need not have.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from mainstem.sim.__main__ import report
from mainstem.sim.nemesis import EXPECTED, REACHED
from mainstem.sim.world import run_seed
from tests.support.builds import is_fastest

pytestmark = pytest.mark.skipif(not is_fastest(), reason="test_replay says that both builds do the same")

SAMPLE = 200
SLICE = 10
SELDOM = frozenset(
    {
        "S6 failed fsync",
        "S11 misdirected write",
        "C5 copy appended after expiry",
        "move interrupted by a stop",
        "start moved beside a move",
    }
)
"""What a sample of this size has a few times, or not at all. A campaign must have it."""


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
        assert never(done) == []


def never(done: list[dict[str, int]]) -> list[str]:
    return [name for name in (*EXPECTED, *REACHED) if name not in SELDOM and not any(name in each for each in done)]


def test_a_sample_in_which_something_never_happened_fails() -> None:
    everything = dict.fromkeys((*EXPECTED, *REACHED), 1)
    assert never([{}, everything]) == []
    del everything["X2 kill"]
    assert never([{}, everything]) == ["X2 kill"]
