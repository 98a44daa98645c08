"""Runs seeds in processes of their own, several at a time, and gives the results as they come.

- A worker is forked, runs some seeds and ends. It collects no garbage, so it must not get old.
- It tells of each seed when that is through. One that dies, of a fault of compiled code or for want of memory, has lost
  the seed that it was at: that one has failed, and those that were to come are given to another worker.
- A seed that is not through after `SEED_S_MAX` never will be: the kernel ends its worker then, whatever that is at.
"""

import gc
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing.connection import Connection, wait
from typing import Final

from mainstem.sim.ledger import Violation
from mainstem.sim.world import Result

SEEDS_PER_WORKER: Final = 40
SEEDS_PER_WORKER_MIN: Final = 5
"""Towards the end workers are given less, so that none is the last one for long."""
SEED_S_MAX: Final = 600
"""How long a seed may take, which takes a fifth of a second on a core of its own: the machine may be busy."""
LOST: Final = "a run ends"
"""What is said to be broken where a run has taken its process with it."""

Run = Callable[[int], Result]

_fork: Final = multiprocessing.get_context("fork")


class Worker:
    def __init__(self, run: Run, seeds: Iterable[int]) -> None:
        self.seeds = deque(seeds)
        """Those that it has not told of, in the order in which it will."""
        self.results, results = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_work, args=(run, list(self.seeds), results), daemon=True)
        self._process.start()
        results.close()  # or its end would never be seen here

    def next(self) -> Result:
        """What it tells next; EOFError when it has ended."""
        result: Result = self.results.recv()
        self.seeds.popleft()
        return result

    def end(self) -> str:
        """Waits for its end; how that came."""
        self.results.close()
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGALRM:
            return f"it was not over after {SEED_S_MAX} s"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its process died: {how}"

    def kill(self) -> None:
        self._process.kill()
        self.end()


def _work(run: Run, seeds: list[int], results: Connection) -> None:
    gc.disable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for seed in seeds:
        signal.alarm(SEED_S_MAX)
        results.send(run(seed))


def run_in_workers(run: Run, seeds: Iterable[int], jobs: int) -> Generator[Result, None, None]:
    """The results of all seeds, in no order."""
    waiting = deque(seeds)
    running: dict[object, Worker] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                share = max(SEEDS_PER_WORKER_MIN, min(SEEDS_PER_WORKER, len(waiting) // (2 * jobs)))
                begun = Worker(run, [waiting.popleft() for _ in range(min(share, len(waiting)))])
                running[begun.results] = begun
            for each in wait([worker.results for worker in running.values()]):
                worker = running[each]
                try:
                    result = worker.next()
                except EOFError:
                    del running[each]
                    how = worker.end()
                    if not worker.seeds:
                        continue
                    result = lost(worker.seeds.popleft(), how)
                    waiting.extendleft(reversed(worker.seeds))
                yield result
    finally:
        for worker in running.values():
            worker.kill()


def lost(seed: int, how: str) -> Result:
    return Result(seed, Counter(), "", Violation(LOST, how), [])
