"""What a campaign tells: how it gets on, and of a failed seed why, what happened last, and how to see it again."""

import asyncio
import gc
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from random import Random

import pytest

from mainstem.sim import __main__ as sim_main
from mainstem.sim import workers
from mainstem.sim.__main__ import progress, report
from mainstem.sim.expected import EXPECTED, REACHED, SEEDS_MIN, SELDOM, never_happened
from mainstem.sim.ledger import Violation
from mainstem.sim.loop import Scheduler
from mainstem.sim.trace import Trace
from mainstem.sim.tuning import Tuning
from mainstem.sim.workers import run_in_workers
from mainstem.sim.world import Result, World


def test_a_failed_seed_says_what_broke_and_how_to_replay_it() -> None:
    world = World(3)
    world.scheduler.later(2.0, lambda: world._fail(Violation("D1 offsets are given once", "log-0 has two of them")))
    told = report(world.run())
    assert "seed 3 broke a promise: D1 offsets are given once" in told
    assert "log-0 has two of them" in told
    assert "the broker starts, for life 1" in told
    assert f"cramjam {version('cramjam')}" in told
    assert told.endswith("replay it with: python -m mainstem.sim --seed 3")


def test_a_run_that_ends_in_an_exception_tells_its_story_too() -> None:
    def fail() -> None:
        raise KeyError("nobody has thought of this")

    world = World(3)
    world.scheduler.later(2.0, fail)
    told = report(world.run())
    assert "seed 3 broke a promise: no run ends in an exception" in told
    assert "KeyError: 'nobody has thought of this'" in told
    assert "the broker starts, for life 1" in told


def test_a_step_that_goes_on_and_on_is_a_failed_run_with_a_story() -> None:
    """A partition that moved with a flipped bit was read for ever, in one step: nobody was told why the run died."""
    world = World(3)

    def read_on() -> None:
        while True:
            world.disk.list_directory("/data/log-0")

    def begin() -> None:
        assert world.process.loop is not None
        world.process.loop.call_soon(read_on)

    world.scheduler.later(2.0, begin)
    told = report(world.run())
    assert "seed 3 broke a promise: a step ends" in told
    assert "goes on with a list of /data/log-0" in told
    assert "the broker starts, for life 1" in told


def test_what_a_failed_run_lets_go_of_is_ended_with_it_and_says_nothing_more(tmp_path: Path) -> None:
    """What the broker had under way was ended when the file of the trace was closed: that was told after the report."""
    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            world.trace("note", "nobody", "asks any more")
            seen.append("ended")

    def fail() -> None:
        if world.process.loop is None or not world.process.is_serving:
            world.scheduler.later(0.1, fail)
            return
        world.process.loop.create_task(wait())
        world.scheduler.later(0.01, lambda: world._fail(Violation("D1 offsets are given once", "log-0")))

    with open(tmp_path / "run.jsonl", "w") as file:
        world = World(3, file)
        world.scheduler.later(2.0, fail)
        assert world.run().violation is not None
        assert seen == ["ended"]
    world.trace("note", "nobody", "asks any more")
    assert "asks any more" not in (tmp_path / "run.jsonl").read_text()


def test_what_turned_a_run_is_not_buried_under_what_went_well() -> None:
    trace = Trace(Scheduler(Random(1)))
    trace.event("died", 1, "power loss")
    for offset in range(1000):
        trace.event("acked", "plain", "log-0", offset)
    trace.event("start", 2)
    story = trace.story()
    assert "the broker is gone (power loss)" in story[0]
    assert "plain is told that its batch is at 999 of log-0" in story[-2]
    assert "the broker starts, for life 2" in story[-1]
    assert len(story) < 50


def test_what_happened_last_is_what_happened_to_what_the_violation_names() -> None:
    trace = Trace(Scheduler(Random(1)))
    trace.event("connect", "plain", "broker", 7)
    trace.event("connect", "reader-short", "broker", 8)
    trace.event("acked", "plain", "log-0", 3)
    trace.event("acked", "own-producer", "log-1", 81)
    trace.event("ended", "txnb0", 4, True)
    for offset in range(1000):
        trace.event("acked", "shorter", "short-0", offset)
    trace.event("reset", 7, "by the network")
    trace.event("reset", 8, "by the network")

    def told(violation: Violation) -> list[str]:
        return [line.split(" s  ")[1] for line in trace.story(violation.what)]

    acked = "plain is told that its batch is at 3 of log-0"
    assert told(Violation("duplicate", "('log', 0) has b'x.1' at 3 and at 4")) == [acked]
    assert told(Violation("D3 no log disappears", "log-0, churn1-0 did not come back")) == [acked]
    assert told(Violation("T1 a batch in order is taken", "plain sent sequence 3 to log-0: NONE")) == [
        "plain connects to broker: connection 7",
        acked,
        "connection 7 is reset: by the network",
    ]
    assert told(Violation("G1a", "transaction 4 was never committed")) == ["txnb0 has committed its transaction 4"]
    assert len(told(Violation("P12 clients finish", "not within 60 s"))) == 20


def test_a_campaign_says_how_far_it_is_how_fast_and_how_long_it_will_take() -> None:
    line = progress(done=1500, seeds=20_000, failed=2, seconds=300.0)
    assert re.fullmatch(r"1500/20000 seeds, 2 failed, 5\.0 a second, 1:01:40 to go", line)


def _no_run(seed: int) -> Result:
    return Result(seed, Counter({"collects": int(gc.isenabled())}), "", None, [])


@pytest.mark.parametrize("seeds", [1, 20])
def test_a_campaign_runs_each_seed_once_and_its_workers_collect_no_garbage(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_main, "run_seed", _no_run)
    try:
        results = list(sim_main._results(7, seeds, 2))
    finally:
        gc.unfreeze()
    assert sorted(each.seed for each in results) == list(range(7, 7 + seeds))
    assert not any(each.counts["collects"] for each in results)


def _dies_at_20(seed: int) -> Result:
    if seed == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return _no_run(seed)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_worker_that_dies_costs_the_seed_that_it_was_at_and_no_other(
    jobs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A campaign waited for its results for ever."""
    monkeypatch.setattr(sim_main, "run_seed", _dies_at_20)
    try:
        assert sim_main._campaign(7, 100, jobs) == 1
    finally:
        gc.unfreeze()
    told = capsys.readouterr().out
    assert "seed 20 broke a promise: a run ends" in told
    assert "its process died: SIGKILL" in told
    assert "100/100 seeds, 1 failed" in told
    assert told.endswith("failed: 20\n")


def _hangs_at_20(seed: int) -> Result:
    while seed == 20:
        pass
    return _no_run(seed)


@pytest.mark.parametrize("first", [7, 20])
def test_a_seed_that_hangs_is_a_failed_seed(
    first: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A campaign waited for it for ever; so it did for one of the first, which are run to warm up, too."""
    monkeypatch.setattr(sim_main, "run_seed", _hangs_at_20)
    monkeypatch.setattr(workers, "SEED_S_MAX", 1)
    try:
        assert sim_main._campaign(first, 40, 2) == 1
    finally:
        gc.unfreeze()
    told = capsys.readouterr().out
    assert "seed 20 broke a promise: a run ends" in told
    assert "it was not over after 1 s" in told
    assert "40/40 seeds, 1 failed" in told
    assert told.endswith("failed: 20\n")


def test_one_seed_that_hangs_is_ended_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its replay, which the campaign had asked for, took what memory the machine had."""
    monkeypatch.setattr(sim_main, "run_seed", _hangs_at_20)
    monkeypatch.setattr(workers, "SEED_S_MAX", 1)
    assert sim_main._one(20, None) == 1
    told = capsys.readouterr().out
    assert "seed 20 broke a promise: a run ends" in told
    assert "it was not over after 1 s" in told
    assert "what happened last" not in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--jobs 0", "--jobs is 0; it must be 1 or more"),
        ("--seeds 0", "--seeds is 0; it must be 1 or more"),
        ("--seeds -5", "--seeds is -5; it must be 1 or more"),
        ("--seeds 5 --trace run.jsonl", "--trace is for one run; say which by --seed"),
        ("--seed 5 --seeds 5", "argument --seeds: not allowed with argument --seed"),
        ("--seed 5 --trace /nowhere/x", "--trace is /nowhere/x, which cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    given: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", *given.split()])
    with pytest.raises(SystemExit) as ended:
        sim_main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {said}\n")


def test_a_campaign_that_is_given_up_leaves_no_worker_behind() -> None:
    results = run_in_workers(_sleeps, range(20), 2)
    next(results)
    assert len(multiprocessing.active_children()) == 2
    results.close()
    assert multiprocessing.active_children() == []


def _sleeps(seed: int) -> Result:
    time.sleep(seed)
    return _no_run(seed)


@pytest.mark.parametrize("left_out", ["", "N3 overtaken", "S12 cold read", "log given up"])
def test_a_campaign_in_which_something_never_happened_fails(
    left_out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counter(dict.fromkeys((*EXPECTED, *REACHED), 1))
    del counts[left_out]
    monkeypatch.setattr(sim_main, "campaign", lambda first, seeds, jobs: (counts, []))
    assert sim_main._campaign(0, 200, 1) == (1 if left_out else 0)
    told = capsys.readouterr().out
    assert ("these never happened" in told) == bool(left_out)
    assert left_out in told


def test_what_is_rare_is_asked_of_campaigns_that_are_large_enough_for_it() -> None:
    everything = dict.fromkeys((*EXPECTED, *REACHED), 1)
    assert set(SELDOM) < set(everything)
    assert all(SEEDS_MIN < seeds <= 20_000 for seeds in SELDOM.values()), "what no campaign is asked for is no proof"
    for name, seeds in SELDOM.items():
        without = everything | {name: 0}
        assert never_happened(without, seeds - 1) == []
        assert never_happened(without, seeds) == [name]
    assert never_happened({}, SEEDS_MIN - 1) == []
    assert never_happened(everything | {"X2 kill": 0}, SEEDS_MIN) == ["X2 kill"]


def test_what_is_counted_of_a_run_is_what_happened_in_it() -> None:
    """Nobody's injector can be taken out and its name still be counted: with no faults there are none."""
    world = World(4)
    assert world.disk.is_cold is not None, "take another seed that has cold reads"
    world.disk.is_cold = None
    world.tuning = Tuning()
    world.nemesis.kinds = []
    counts = world.run().counts
    of_every_run = {"N3 overtaken", "N12 back-pressure", "K1 skewed clock"}
    faults = [name for name in EXPECTED if name[0] in "NXKS" and name[1].isdigit() and name not in of_every_run]
    assert len(faults) > 30
    assert [name for name in faults if counts[name]] == []
