"""The simulator finds each historical bug that is put back, within a stated number of seeds (docs/track-record.md)."""

import pytest

from mainstem.build_info import build_name
from mainstem.sim.world import run_seed
from tests.mutations.historical import MUTATIONS, Mutation

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="compiled functions cannot be replaced")


def find(mutation: Mutation, patch: pytest.MonkeyPatch) -> tuple[int, str]:
    """How many seeds it took, and the promise that was found broken."""
    times_reached = 0

    def reached() -> None:
        nonlocal times_reached
        times_reached += 1

    mutation.patch(patch, reached)
    for count in range(mutation.seeds_max):
        result = run_seed(mutation.first_seed + count * mutation.every)
        if result.violation is not None:
            assert times_reached > 0, f"{result.violation}, but the mutated code never ran"
            assert result.violation.invariant.startswith(mutation.invariants), str(result.violation)
            return count + 1, result.violation.invariant
    raise AssertionError(f"{mutation.seeds_max} seeds passed; the mutation was reached {times_reached} times")


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
def test_a_bug_that_others_had_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, promise = find(mutation, monkeypatch)
    print(f"{mutation.bug}: {promise}, seed {mutation.first_seed + (seeds - 1) * mutation.every}")
