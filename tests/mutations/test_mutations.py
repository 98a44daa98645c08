"""The simulator finds each historical bug that is put back, within a stated number of seeds (docs/track-record.md)."""

import pytest

from mainstem.build_info import build_name
from mainstem.sim.world import run_seed
from tests.mutations.historical import MUTATIONS, Mutation

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="compiled functions cannot be replaced")


def find(mutation: Mutation) -> tuple[int, str]:
    """The first seed that finds it, and the promise that was found broken. Without the mutation that seed passes."""
    seeds = range(mutation.first_seed, mutation.first_seed + mutation.seeds_max * mutation.every, mutation.every)
    times_reached = 0

    def reached() -> None:
        nonlocal times_reached
        times_reached += 1

    with pytest.MonkeyPatch.context() as patch:
        mutation.patch(patch, reached)
        results = map(run_seed, seeds)
        found = next((result for result in results if result.violation is not None), None)
    assert found is not None, f"{mutation.seeds_max} seeds passed; the mutation was reached {times_reached} times"
    assert found.violation is not None
    assert times_reached > 0, f"{found.violation}, but the mutated code never ran"
    assert found.violation.invariant.startswith(mutation.invariants), str(found.violation)
    without = run_seed(found.seed).violation
    assert without is None, f"seed {found.seed} fails without the mutation, too: {without}"
    return found.seed, found.violation.invariant


QUICK = 30
"""A bug that takes no more seeds than this is looked for in every `make test`."""


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(
            each,
            id=each.name,
            marks=[] if each.seeds_max <= QUICK else [pytest.mark.campaign],
        )
        for each in MUTATIONS
    ],
)
def test_a_bug_that_others_had_is_found(mutation: Mutation) -> None:
    seed, promise = find(mutation)
    print(f"{mutation.bug}: {promise}, seed {seed}")
