"""A sample of simulated runs for every `make test`; `make test-sim` runs as many as one likes."""

import pytest

from mainstem.build_info import build_name
from mainstem.sim.__main__ import report
from mainstem.sim.world import run_seed

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")

SAMPLE = 200
SLICE = 10


@pytest.mark.parametrize("first", range(0, SAMPLE, SLICE))
def test_no_promise_is_broken_whatever_goes_wrong(first: int) -> None:
    acknowledged = 0
    for seed in range(first, first + SLICE):
        result = run_seed(seed)
        assert result.violation is None, report(result)
        acknowledged += result.counts["acknowledged"]
    assert acknowledged > 100 * SLICE, "hardly anything was done"
