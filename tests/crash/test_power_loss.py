"""Power is lost at every step of small workloads; `enumeration` says what is tried and what must hold."""

import pytest

from tests.crash.enumeration import Workload, run
from tests.crash.workloads import WORKLOADS

by_name = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@by_name
def test_a_sample_of_crashes_recovers(workload: Workload) -> None:
    tally = run(workload, share=0.01)
    assert tally.moments > len(workload.operations)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@by_name
def test_every_crash_recovers(workload: Workload) -> None:
    tally = run(workload)
    print(f"{workload.name}: {tally}")
    assert tally.disks > 10
