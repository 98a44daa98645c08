"""Your own asyncio code in the simulator: our client, the real broker, simulated time, and everything that goes wrong.

    async def produce(sim: Simulation) -> None:
        async with sim.producer() as producer:
            while not sim.is_over:
                await producer.send_and_wait("orders", b"...")

    simulate({"producer": produce}, topics={"orders": 2}, seeds=range(100))

One seed is one run, and the same run every time: who is slow, what is lost and when the broker dies are drawn from it.
A run has hard times first; then faults end, processes are told so (`is_over`) and must come to their end, the broker is
started once more, and `check` looks at what came of it. `docs/simulator.md` tells more.

Rules for what runs inside:
- asyncio, our client and plain computation only: there are no real sockets, files or threads, and `time.time()` knows
  nothing of simulated time. `sim.now_ms()` and `sim.rng` are the clock and the dice.
- A process may die anywhere, without a `finally`, and is then started anew: what it must remember belongs into a topic.
  What tests want to know for themselves may stand in any list outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from os import PathLike
from random import Random
from typing import IO, Any, Final

from mainstem.broker.config import BrokerConfig
from mainstem.client.admin import AsyncAdmin
from mainstem.client.consumer import AsyncConsumer
from mainstem.client.producer import AsyncProducer
from mainstem.sim.checkers.commits_survive import CommitsSurvive
from mainstem.sim.checkers.history import HistoryHolds
from mainstem.sim.checkers.transactions import TransactionsHold
from mainstem.sim.client import SimClient
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.tuning import Tuning
from mainstem.sim.txn_shape import TxnShape
from mainstem.sim.versions import versions
from mainstem.sim.workloads import client_ms
from mainstem.sim.world import A_DAY_MS, ADDRESS, LIVENESS_S, Result, World

Process = Callable[["Simulation"], Awaitable[None]]

DEFAULT_FAULTS: Final = ("network", "broker", "power", "processes", "clock", "slow disk")


class SimulationFailed(AssertionError):  # noqa: N818 - what pytest shows is a failed test
    """A run that did not end well: its seed, why, and what happened last."""

    def __init__(self, result: Result) -> None:
        assert result.violation is not None
        story = "\n".join(f"  {line}" for line in result.story)
        super().__init__(
            f"seed {result.seed}: {result.violation.invariant}\n  {result.violation.what}\n"
            f"what happened last:\n{story}\nwith {versions()}\nreplay it with: simulate(..., seeds=[{result.seed}])"
        )
        self.seed = result.seed


class Simulation:
    """What a process knows of the world it runs in."""

    def __init__(self, world: _World, name: str, rng: Random) -> None:
        self.name = name
        """The process's, which it keeps when it is started anew."""
        self.rng = rng
        self.bootstrap = f"{ADDRESS[0]}:{ADDRESS[1]}"
        self._world = world

    @property
    def seed(self) -> int:
        return self._world.seed

    @property
    def is_over(self) -> bool:
        """Whether the hard times have passed: finish what is to be finished, and return."""
        return self._world.is_stopping

    def now_ms(self) -> int:
        return client_ms(self._world)

    def note(self, what: str) -> None:
        """Puts a line into the story that a failed run tells."""
        self._world.trace("note", self.name, what)

    def producer(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(
            rng=Random(self.rng.random()), clock=self.now_ms, **({"bootstrap_servers": self.bootstrap} | options)
        )

    def consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        return AsyncConsumer(
            *topics,
            rng=Random(self.rng.random()),
            clock=self.now_ms,
            **({"bootstrap_servers": self.bootstrap} | options),
        )

    def admin(self, **options: Any) -> AsyncAdmin:
        return AsyncAdmin(rng=Random(self.rng.random()), **({"bootstrap_servers": self.bootstrap} | options))


CHECK_FAILED: Final = "the check failed"


def _failed(name: str) -> str:
    return f"process {name!r} failed"


class _World(World):
    is_for_users = True

    def __init__(
        self,
        seed: int,
        processes: Mapping[str, Process],
        topics: Mapping[str, int],
        check: Process | None,
        faults: Iterable[str],
        settings: Mapping[str, str],
        topic_settings: Mapping[str, Mapping[str, str]],
        is_durable: bool,
        trace_file: IO[str] | None,
    ) -> None:
        self._processes = processes
        self._wanted = topics
        self._topic_settings = topic_settings
        self._check_at_end = check
        self._settings = settings
        self._is_durable = is_durable
        self._is_checking = False
        super().__init__(seed, trace_file)
        theirs = HistoryHolds | CommitsSurvive | TransactionsHold
        self.checkers = [each for each in self.checkers if not isinstance(each, theirs)]
        self.nemesis.allow(faults)

    def _config(self, rng: Random) -> BrokerConfig:
        self.durable = self._is_durable
        self.is_transactional = True
        config = super()._config(rng)
        return BrokerConfig({**config.given, "offsets.retention.minutes": "10080", **self._settings})

    def _txn_shape(self) -> TxnShape:
        return TxnShape()

    def _tuning(self) -> Tuning:
        return Tuning()

    def _producer_expiration_ms(self) -> int:
        return int(self._settings.get("producer.id.expiration.ms", A_DAY_MS))

    def may_be_torn(self, producer_id: int, epoch: int = 0) -> bool:
        return not self.durable

    def _topics(self, rng: Random) -> dict[str, tuple[int, dict[str, str]]]:
        return {
            name: (partitions, dict(self._topic_settings.get(name, {}))) for name, partitions in self._wanted.items()
        }

    def may_rot(self) -> list[Place]:
        return [(name, index) for name, (count, _) in self.topics.items() for index in range(count)] or [("", 0)]

    def may_be_gone(self, names: list[str]) -> bool:
        return True

    def _add_clients(self) -> None:
        for name, process in self._processes.items():
            self.add_client(name, self._starts(name, process))

    def _starts(self, name: str, process: Process) -> Callable[[SimClient, Random], Coroutine[Any, Any, None]]:
        async def start(client: SimClient, rng: Random) -> None:
            try:
                await process(Simulation(self, name, rng))
                await asyncio.get_running_loop().shutdown_asyncgens()
                self.count("own processes ended")
            except Violation:
                raise
            # Nobody here cancels a process: one that dies is left where it stands. `pytest.fail` and `skip` raise what
            # is no Exception; who is closed after the end of the run, or interrupted by hand, has not failed.
            except (GeneratorExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise Violation(_failed(name), f"{type(error).__name__}: {error}") from error

        return start

    def _unnoticed(self, failure: str) -> Violation:
        """A task that somebody's process has started, and never awaited, is theirs as well."""
        where, _, what = failure.partition(": ")
        name = where.rstrip("'")
        if name in self._processes:
            return Violation(_failed(name), what)
        return Violation(CHECK_FAILED, what) if self._is_checking else super()._unnoticed(failure)

    def _finish(self) -> None:
        """What runs inside is the user's, and so is the promise that it ends."""
        done = self.scheduler.run_until(self._all_done, self.scheduler.now + LIVENESS_S)
        self._check()
        if not done:
            late = [name.rstrip("'") for name, task in self._tasks.items() if not task.done()]
            names = ", ".join(repr(name) for name in late)
            raise Violation(
                f"process {names} did not end" if len(late) == 1 else f"processes {names} did not end",
                f"the faults were over, `is_over` was true, and the broker served, for {LIVENESS_S:.0f} s",
            )

    async def _read_everything(self) -> None:
        await self.observer.all_visible()
        if self._check_at_end is not None:
            self._is_checking = True
            try:
                await self._check_at_end(Simulation(self, "check", Random(f"{self.seed}:check")))
                await asyncio.get_running_loop().shutdown_asyncgens()
            except (GeneratorExit, KeyboardInterrupt, Violation):
                raise
            except BaseException as error:
                raise Violation(CHECK_FAILED, f"{type(error).__name__}: {error}") from error


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def simulate(
    processes: Mapping[str, Process],
    *,
    topics: Mapping[str, int],
    seeds: Iterable[int] = range(20),
    check: Process | None = None,
    faults: Iterable[str] = DEFAULT_FAULTS,
    settings: Mapping[str, str] | None = None,
    topic_settings: Mapping[str, Mapping[str, str]] | None = None,
    is_durable: bool = True,
    before: Callable[[], None] | None = None,
    trace: str | PathLike[str] | None = None,
) -> dict[str, int]:
    """Runs the processes once for each seed; SimulationFailed for the first run in which one, or `check`, fails.

    `topics` are created first, with so many partitions each. `settings` are the broker's, by Kafka's names, and
    `topic_settings` those of topics, by their names. With `is_durable` every acknowledgement waits for the disk, so
    that not even a power loss may take what was acknowledged; without it, as by Kafka's defaults, a power loss may.
    `before` is called before each run: to empty one's lists. `trace` is the path of a file that has every event of the
    last run, as JSON lines. Returns how often each fault struck, over all runs.
    """
    if _is_in_a_loop():
        raise RuntimeError(
            "simulate() has loops of its own, and cannot run inside of one: call it from a plain function, or with "
            "`await asyncio.to_thread(simulate, ...)`"
        )
    unknown = [name for name in topic_settings or {} if name not in topics]
    if unknown:
        raise ValueError(f"there are settings for topic {unknown[0]!r}, which is not one of {', '.join(topics)}")
    counts: dict[str, int] = {}
    chosen = tuple(faults)

    def run(seed: int, trace_file: IO[str] | None = None) -> Result:
        return _World(
            seed, processes, topics, check, chosen, settings or {}, topic_settings or {}, is_durable, trace_file
        ).run()

    for seed in seeds:
        if before is not None:
            before()
        if trace is None:
            result = run(seed)
        else:
            with open(trace, "w") as file:
                result = run(seed, file)
        if result.violation is not None:
            raise SimulationFailed(result) from result.violation.__cause__
        for what, count in result.counts.items():
            counts[what] = counts.get(what, 0) + count
    return counts
