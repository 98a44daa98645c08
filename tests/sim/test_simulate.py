"""What users run in the simulator: their processes under our faults, and the same run from the same seed."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
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


def test_a_process_that_ends_cancelled_has_failed() -> None:
    async def cancelled(sim: Simulation) -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, future.cancel)
        await future

    with pytest.raises(SimulationFailed, match=r"process 'one' failed\s+CancelledError"):
        simulate({"one": cancelled}, topics={}, seeds=[1], faults=())

    async def ends(sim: Simulation) -> None:
        pass

    with pytest.raises(SimulationFailed, match=r"the check failed\s+CancelledError"):
        simulate({"one": ends}, topics={}, check=cancelled, seeds=[1], faults=())


def test_what_pytest_raises_in_a_process_is_the_users_own() -> None:
    """It is no Exception: a run told of it as of a workload of the simulator's own."""

    async def fails(sim: Simulation) -> None:
        pytest.fail("two orders are missing")

    async def skips(sim: Simulation) -> None:
        pytest.skip("no orders today")

    async def leaves(sim: Simulation) -> None:
        raise SystemExit(3)

    async def ends(sim: Simulation) -> None:
        pass

    for process, why in ((fails, "Failed: two orders"), (skips, "Skipped: no orders"), (leaves, "SystemExit: 3")):
        with pytest.raises(SimulationFailed, match=rf"process 'one' failed\s+{why}"):
            simulate({"one": process}, topics={}, seeds=[1], faults=())
        with pytest.raises(SimulationFailed, match=rf"the check failed\s+{why}"):
            simulate({"one": ends}, topics={}, check=process, seeds=[1], faults=())


def test_a_task_that_fails_and_is_never_awaited_is_the_users_own() -> None:
    async def boom() -> None:
        raise ValueError("lost in a task")

    async def starts(sim: Simulation) -> None:
        asyncio.create_task(boom())  # noqa: RUF006 - nobody keeps it
        await asyncio.sleep(0.1)

    async def ends(sim: Simulation) -> None:
        pass

    with pytest.raises(SimulationFailed, match=r"process 'one' failed\s+.*ValueError: lost in a task"):
        simulate({"one": starts}, topics={}, seeds=[1], faults=())
    with pytest.raises(SimulationFailed, match=r"the check failed\s+.*ValueError: lost in a task"):
        simulate({"one": ends}, topics={}, check=starts, seeds=[1], faults=())


def test_a_running_loop_is_told_of_and_left_as_it_is() -> None:
    """It was no longer the running one when `simulate` returned: the next await failed."""

    async def ends(sim: Simulation) -> None:
        pass

    async def calls() -> dict[str, int]:
        with pytest.raises(RuntimeError, match=r"call it from a plain function, or with `await asyncio\.to_thread"):
            simulate({"one": ends}, topics={}, seeds=[1], faults=())
        await asyncio.sleep(0.001)
        counts = await asyncio.to_thread(simulate, {"one": ends}, topics={}, seeds=[1], faults=())
        await asyncio.sleep(0.001)
        return counts

    assert asyncio.run(calls())["own processes ended"] == 1


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "why"),
    [
        ("orders", 1, {"cleanup.policy": "compacted"}, "not 'orders'.*INVALID_CONFIG: .*compacted"),
        ("two words", 1, {}, "not 'two words'.*INVALID_TOPIC_EXCEPTION: .+"),
        ("orders", 0, {}, "not 'orders'.*INVALID_PARTITIONS: .+"),
    ],
)
def test_a_topic_that_no_broker_creates_is_named_with_the_reason(
    name: str, partitions: int, settings: dict[str, str], why: str
) -> None:
    async def ends(sim: Simulation) -> None:
        pass

    with pytest.raises(SimulationFailed, match=why):
        simulate({"one": ends}, topics={name: partitions}, topic_settings={name: settings}, seeds=[1], faults=())


def test_async_generators_are_closed_when_a_process_ends_and_not_when_it_dies() -> None:
    told: list[str] = []
    kept: list[object] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            await asyncio.sleep(0.1)
            told.append(name)

    async def ends(sim: Simulation) -> None:
        for name in ("first", "second"):
            generator = numbers(name)
            kept.append(generator)
            async for _ in generator:
                break
        async for _ in numbers("let go of"):
            break
        await asyncio.sleep(1)
        assert told == ["let go of"]

    simulate({"one": ends}, topics={}, seeds=[1], faults=())
    assert sorted(told) == ["first", "let go of", "second"], "two that pause as long may end in any order"

    async def dies(sim: Simulation) -> None:
        generator = numbers("dead")
        async for _ in generator:
            while not sim.is_over:
                told.append("alive")
                await asyncio.sleep(0.05)
            return

    for seed in range(20):
        told.clear()
        counts = simulate({"one": dies}, topics={}, seeds=[seed], faults=("processes",))
        if counts.get("client died"):
            assert told.count("dead") == 1, "of the one that came to its end"
            break
    else:
        raise AssertionError("nobody died")


def test_an_async_generator_that_fails_to_close_is_a_failure() -> None:
    async def fails() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise KeyError("in a finally")

    kept = []

    async def work(sim: Simulation) -> None:
        kept.append(fails())
        async for _ in kept[0]:
            break

    with pytest.raises(SimulationFailed, match="an async generator failed to close: KeyError"):
        simulate({"one": work}, topics={}, seeds=[1], faults=())
