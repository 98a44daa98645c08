"""What users run in the simulator: their processes under our faults, and the same run from the same seed."""

import asyncio

import pytest

from mainstem.build_info import build_name
from mainstem.testing.simulation import DEFAULT_FAULTS, Simulation, SimulationFailed, simulate
from tests.support.doc_examples import run_page

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")


def test_the_page_about_the_simulator() -> None:
    left = run_page("simulator.md")
    assert left["counts"]["own processes ended"] == 5
    assert "optimist" in left["told"]


def test_a_seed_is_the_same_run_every_time() -> None:
    seen: list[tuple[str, int]] = []

    async def produce(sim: Simulation) -> None:
        async with sim.producer(request_timeout_ms=1000) as producer:
            while not sim.is_over:
                metadata = await producer.send_and_wait("orders", b"x")
                seen.append((sim.name, sim.now_ms()))
                seen.append(("offset", metadata.offset))

    def run() -> tuple[dict[str, int], list[tuple[str, int]]]:
        seen.clear()
        counts = simulate({"one": produce, "two": produce}, topics={"orders": 2}, seeds=[3])
        return counts, list(seen)

    first = run()
    assert len(first[1]) > 20
    assert run() == first


def test_a_process_dies_without_cleaning_up_and_is_started_anew() -> None:
    began: list[str] = []
    cleaned: list[str] = []

    async def work(sim: Simulation) -> None:
        began.append(sim.name)
        try:
            while not sim.is_over:
                await asyncio.sleep(0.1)
        finally:
            cleaned.append(sim.name)

    async def check(sim: Simulation) -> None:
        assert cleaned == ["worker"], "only the one that came to its end"
        began.append("a run")

    counts = simulate(
        {"worker": work}, topics={}, seeds=range(3), faults=("processes",), check=check, before=cleaned.clear
    )
    assert began.count("a run") == 3
    assert began.count("worker") == 3 + counts["client died"] > 3


def test_a_failing_check_is_reported_with_its_seed_and_story() -> None:
    async def work(sim: Simulation) -> None:
        sim.note("was here")

    async def check(sim: Simulation) -> None:
        raise ValueError("not what I wanted")

    with pytest.raises(SimulationFailed, match=r"seed 7: the check failed\n  ValueError: not what I wanted") as failure:
        simulate({"worker": work}, topics={}, check=check, seeds=[7])
    assert "worker: was here" in str(failure.value)
    assert str(failure.value).endswith("replay it with: simulate(..., seeds=[7])")
    assert isinstance(failure.value.__cause__, ValueError)


def test_a_process_that_does_not_end_is_a_failure() -> None:
    async def work(sim: Simulation) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationFailed, match="P12 clients finish"):
        simulate({"worker": work}, topics={}, seeds=[1], faults=("network",))


def test_faults_that_nobody_knows_are_refused() -> None:
    assert "network" in DEFAULT_FAULTS
    with pytest.raises(ValueError, match="no faults are called 'meteors'"):
        simulate({}, topics={}, seeds=[1], faults=("meteors",))


def test_a_producer_forgets_topics_that_it_no_longer_sends_to() -> None:
    """`metadata_max_idle_ms` is five minutes, and at least five seconds: a test for simulated time."""
    known: list[set[str]] = []

    async def produce(sim: Simulation) -> None:
        async with sim.producer(metadata_max_age_ms=1000, metadata_max_idle_ms=5000) as producer:
            await producer.send_and_wait("idle", b"1")
            for _ in range(8):
                await producer.send_and_wait("busy", b"x")
                assert producer._cluster is not None
                known.append(set(producer._cluster.cache.topics))
                await asyncio.sleep(1)
            assert (await producer.send_and_wait("idle", b"2")).offset == 1

    simulate({"producer": produce}, topics={"idle": 1, "busy": 1}, seeds=[1], faults=())
    assert known[3] == {"idle", "busy"}
    assert known[-1] == {"busy"}
