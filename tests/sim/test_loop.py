"""Simulated time and processes: what the product's code may rely on, and what a death does not do."""

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable
from random import Random

import pytest

from mainstem.sim.loop import STEPS_PER_INSTANT_MAX, Scheduler, SimLoop, make_loop


def scheduler() -> tuple[Scheduler, SimLoop]:
    made = Scheduler(Random(1))
    return made, make_loop(made, Random(2), "process")


def test_time_passes_only_while_everybody_waits() -> None:
    world, loop = scheduler()

    async def nap() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    task = loop.create_task(nap())
    assert world.run_until(task.done, 4000)
    assert task.result() == pytest.approx(3600)


def test_callbacks_keep_their_order() -> None:
    world, loop = scheduler()
    seen: list[int] = []
    for number in range(10):
        loop.call_soon(seen.append, number)
    world.run_until(lambda: len(seen) == 10, 1)
    assert seen == list(range(10))


def test_a_process_that_dies_runs_no_finally() -> None:
    world, loop = scheduler()
    seen: list[str] = []

    async def work() -> None:
        try:
            seen.append("began")
            await asyncio.sleep(10)
        finally:
            seen.append("cleaned up")

    loop.create_task(work())
    world.run_until(lambda: bool(seen), 5)
    loop.abandon()
    world.run_until(lambda: False, 100)
    assert seen == ["began"]


def test_a_process_that_dies_says_nothing_of_tasks_that_never_began() -> None:
    gc.collect()  # what others left behind says its own
    world, loop = scheduler()

    async def work() -> None: ...

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loop.create_task(work())
        loop.abandon()
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            del world, loop
            gc.collect()
        finally:
            sys.unraisablehook = hook
    assert [str(each.message) for each in said] == []


async def _fails() -> None:
    raise OSError("nobody has looked")


def _fail() -> None:
    raise OSError("nobody has looked")


@pytest.mark.parametrize(
    "begin", [lambda loop: loop.run_in_executor(None, _fail), lambda loop: loop.create_task(_fails())]
)
def test_what_failed_and_nobody_looked_at_is_told_before_its_process_is_gone(
    begin: Callable[[SimLoop], object],
) -> None:
    """Interpreted, it is in a cycle with the frames that it came through, and nothing collects during a run."""
    world, loop = scheduler()
    gc.disable()
    try:
        begin(loop)
        world.run_for(1)
        loop.abandon()
    finally:
        gc.enable()
    [told] = world.failures
    assert "exception was never retrieved: OSError: nobody has looked" in told


def test_what_failed_and_was_looked_at_is_not_told() -> None:
    world, loop = scheduler()
    failing = loop.create_task(_fails())
    world.run_for(1)
    assert loop.has_unseen
    assert isinstance(failing.exception(), OSError)
    assert not loop.has_unseen
    loop.abandon()
    assert world.failures == []


def test_a_paused_process_goes_on_where_it_was() -> None:
    world, loop = scheduler()

    async def work() -> float:
        await asyncio.sleep(1)
        return loop.time()

    task = loop.create_task(work())
    loop.pause()
    world.later(5, loop.resume)
    assert world.run_until(task.done, 10)
    assert task.result() >= 5


def test_what_a_thread_does_happens_at_one_moment_and_is_known_later() -> None:
    world, loop = scheduler()

    async def work() -> tuple[float, float]:
        return await loop.run_in_executor(None, loop.time), loop.time()

    task = loop.create_task(work())
    assert world.run_until(task.done, 1)
    ran, known = task.result()
    assert 0 < ran < known


def test_a_loop_that_never_waits_is_an_error() -> None:
    world, loop = scheduler()

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(AssertionError, match="without ever waiting"):
        world.run_until(lambda: False, 1)


def test_a_loop_that_waits_only_for_what_is_due_already_is_an_error() -> None:
    world, loop = scheduler()

    def again() -> None:
        loop.call_later(0, again)

    loop.call_later(0, again)
    with pytest.raises(AssertionError, match="without ever waiting"):
        world.run_until(lambda: False, 1)


def test_a_loop_that_waits_between_its_steps_may_take_as_many_as_it_likes() -> None:
    world, loop = scheduler()

    def again() -> None:
        loop.call_later(0.001, again)

    again()
    world.run_for(0.001 * (STEPS_PER_INSTANT_MAX + 100))
    assert world.steps > STEPS_PER_INSTANT_MAX


def test_of_a_task_that_never_waits_its_own_line_is_named() -> None:
    world, loop = scheduler()

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop.create_task(spin())
    with pytest.raises(AssertionError, match=rf"spin, {__file__}:\d+$"):
        world.run_until(lambda: False, 1)


def test_tasks_of_two_loops_are_not_hashed_alike() -> None:
    """asyncio keeps all of them in one set, which a few numbers for all loops of many runs made slower and slower."""
    made = Scheduler(Random(1))
    loops = [make_loop(made, Random(f"{number}:threads"), "process") for number in range(20)]
    hashes = [hash(each.create_future()) for each in loops for _ in range(20)]
    assert len(set(hashes)) == 400
