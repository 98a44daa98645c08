import asyncio
import os
import threading

import pytest

from mainstem.client.errors import IllegalStateError
from mainstem.client.sync import loop_thread
from mainstem.client.sync_producer import Producer


def test_what_a_coroutine_gives_or_raises_comes_back() -> None:
    async def give() -> int:
        await asyncio.sleep(0)
        return 5

    async def fail() -> None:
        raise ValueError("no")

    assert loop_thread().run(give()) == 5
    with pytest.raises(ValueError, match="no"):
        loop_thread().run(fail())


def test_all_clients_of_a_process_share_one_loop() -> None:
    assert loop_thread() is loop_thread()


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_blocking_it() -> None:
    async def nothing() -> None: ...

    async def from_inside() -> None:
        with pytest.raises(IllegalStateError, match="in a callback of its own"):
            loop_thread().run(nothing())

    loop_thread().run(from_inside())


def test_a_cancelled_call_is_told_as_a_closed_client() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(IllegalStateError, match="closed"):
        loop_thread().run(cancelled())


def test_many_threads_may_call_at_once() -> None:
    async def give(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: found.append(loop_thread().run(give(number))))
        for number in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == list(range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    async def give() -> int:
        return 7

    parent = loop_thread()
    pid = os.fork()
    if pid == 0:
        try:
            ok = loop_thread() is not parent and loop_thread().run(give()) == 7
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_producer_takes_nothing_in_a_forked_process() -> None:
    """Nobody would send it, or say so."""
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    producer._accumulator.set_topic("t", [(-1, -1)])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            producer.send("t", b"lost")
        except IllegalStateError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    producer.send("t", b"taken")
    producer.close(timeout_ms=0)
