"""Parked requests: woken by partitions or by their deadline, answered once."""

import asyncio

from mainstem.broker.purgatory import Waiter, Watchers


def test_a_waiter_finishes_once_when_a_partition_satisfies_it() -> None:
    async def scenario() -> None:
        first, second = Watchers(), Watchers()
        ready = False
        finished: list[str] = []
        waiter = Waiter(asyncio.get_running_loop(), 10, [first, second], lambda: ready, lambda: finished.append("x"))
        first.wake()
        assert finished == []
        ready = True
        second.wake()
        first.wake()
        waiter.complete()
        assert finished == ["x"]
        assert waiter.is_done
        assert (len(first), len(second)) == (0, 0)

    asyncio.run(scenario())


def test_a_waiter_finishes_at_its_deadline_unsatisfied() -> None:
    async def scenario() -> None:
        watchers = Watchers()
        finished = asyncio.Event()
        Waiter(asyncio.get_running_loop(), 0.01, [watchers], lambda: False, finished.set)
        await asyncio.wait_for(finished.wait(), 5)
        assert len(watchers) == 0

    asyncio.run(scenario())


def test_a_cancelled_waiter_never_finishes() -> None:
    async def scenario() -> None:
        watchers = Watchers()
        finished: list[str] = []
        Waiter(asyncio.get_running_loop(), 0, [watchers], lambda: True, lambda: finished.append("x")).cancel()
        watchers.wake()
        await asyncio.sleep(0.01)
        assert finished == []

    asyncio.run(scenario())
