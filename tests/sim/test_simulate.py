"""What users run in the simulator: their processes under our faults, and the same run from the same seed."""

import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest

from mainstem.build_info import build_name
from mainstem.client import KafkaError
from mainstem.testing.simulation import DEFAULT_FAULTS, Simulation, SimulationFailed, simulate
from tests.support.doc_examples import run_page

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")


def test_the_page_about_the_simulator() -> None:
    left = run_page("simulator.md")
    assert left["counts"]["own processes ended"] == 5
    assert "optimist" in left["told"]


def test_the_page_tells_of_all_faults_and_which_are_on() -> None:
    page = (Path(__file__).parents[2] / "docs/simulator.md").read_text()
    table = page.partition("| `faults` | |")[2].partition("\n\n")[0]
    told = [re.findall("`([^`]+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    with pytest.raises(ValueError, match="there are ") as refused:
        simulate({}, topics={}, seeds=[1], faults=["nothing"])
    named = str(refused.value).partition("there are ")[2].split(", ")
    assert sorted(name for row in told for name in row) == sorted(named)
    assert "All but the last three rows are on" in page
    assert [name for row in told[:-3] for name in row] == list(DEFAULT_FAULTS)


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


def test_topics_have_their_settings_and_a_run_its_trace(tmp_path: Path) -> None:
    found: list[tuple[int, bool]] = []

    async def produce(sim: Simulation) -> None:
        async with sim.producer(request_timeout_ms=1000) as producer:
            await producer.send_and_wait("orders", b"x", timestamp_ms=7)

    async def check(sim: Simulation) -> None:
        async with sim.consumer("orders", auto_offset_reset="earliest") as consumer:
            found.extend((record.offset, record.timestamp == 7) for record in await consumer.poll(1000))

    path = tmp_path / "run.jsonl"
    settings = {"orders": {"message.timestamp.type": "LogAppendTime"}}
    simulate(
        {"shop": produce},
        topics={"orders": 1},
        topic_settings=settings,
        seeds=[1, 2],
        check=check,
        faults=(),
        trace=path,
    )
    assert found == [(0, False), (0, False)]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] == "heal"] == ["heal"]
    with pytest.raises(ValueError, match="settings for topic 'order'"):
        simulate({"shop": produce}, topics={"orders": 1}, topic_settings={"order": {}}, seeds=[1])


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


def test_a_process_that_does_not_end_is_a_failure_of_its_own() -> None:
    async def work(sim: Simulation) -> None:
        await asyncio.get_running_loop().create_future()

    async def end(sim: Simulation) -> None:
        sim.note("that was all")

    with pytest.raises(SimulationFailed, match=r"seed 1: process 'worker' did not end\n  the faults were over"):
        simulate({"worker": work, "other": end}, topics={}, seeds=[1], faults=("network",))
    with pytest.raises(SimulationFailed, match="processes 'one', 'two' did not end"):
        simulate({"one": work, "two": work}, topics={}, seeds=range(3), faults=("processes",))


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


def test_files_of_the_users_own_topics_rot() -> None:
    async def produce(sim: Simulation) -> None:
        async with sim.producer(request_timeout_ms=500, delivery_timeout_ms=1000) as producer:
            while not sim.is_over:
                try:
                    await producer.send_and_wait("orders", b"x" * 100)
                except KafkaError as error:
                    sim.note(str(error))
                await asyncio.sleep(0.05)

    counts = simulate({"shop": produce}, topics={"orders": 1}, seeds=range(3), faults=("rot",))
    assert sum(count for what, count in counts.items() if what.startswith(("S9", "S10", "S11"))) > 0


async def transact(sim: Simulation) -> None:
    while not sim.is_over:
        try:
            async with sim.producer(
                transactional_id=sim.name, transaction_timeout_ms=2000, request_timeout_ms=1000
            ) as producer:
                await producer.init_transactions()
                while not sim.is_over:
                    producer.begin_transaction()
                    for _ in range(3):
                        await producer.send("orders", b"x")
                        await asyncio.sleep(sim.rng.random() * 0.1)
                    await producer.commit_transaction()
        except KafkaError as error:
            sim.note(str(error))


def test_a_transaction_that_a_power_loss_has_torn_is_no_failure_where_losses_are_allowed() -> None:
    counts = simulate(
        {"one": transact, "two": transact},
        topics={"orders": 3},
        seeds=[9, 14, 26],  # in each of these one was left open for ever
        faults=("power", "broker", "network"),
        is_durable=False,
    )
    assert counts["X3 power loss"] > 0


def test_tasks_of_a_set_are_in_the_same_order_in_every_run() -> None:
    """A task group cancels a set of tasks, and `asyncio.wait` returns sets."""
    order: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            order.append(number)

    async def work(sim: Simulation) -> None:
        with contextlib.suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(child(number))
                await asyncio.sleep(1)
                raise RuntimeError("enough")
        futures = [asyncio.get_running_loop().create_future() for _ in range(200)]
        for future in futures:
            future.set_result(None)
        done, _ = await asyncio.wait(futures)
        order.extend(futures.index(future) for future in done)

    def run() -> list[int]:
        order.clear()
        simulate({"one": work}, topics={}, seeds=[1], faults=())
        return list(order)

    first = run()
    assert len(first) == 400
    kept = [object() for _ in range(1000)]  # what is made next is elsewhere in memory
    assert run() == first
    assert kept
