"""What a campaign tells: how it gets on, and of a failed seed why, what happened last, and how to see it again."""

import re
from random import Random

from mainstem.sim.__main__ import progress, report
from mainstem.sim.ledger import Violation
from mainstem.sim.loop import Scheduler
from mainstem.sim.trace import Trace
from mainstem.sim.world import World


def test_a_failed_seed_says_what_broke_and_how_to_replay_it() -> None:
    world = World(3)
    world.scheduler.later(2.0, lambda: world._fail(Violation("D1 offsets are given once", "log-0 has two of them")))
    told = report(world.run())
    assert "seed 3 broke a promise: D1 offsets are given once" in told
    assert "log-0 has two of them" in told
    assert "the broker starts, for life 1" in told
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


def test_what_turned_a_run_is_not_buried_under_what_went_well() -> None:
    trace = Trace(Scheduler(Random(1)))
    trace.event("died", 1, "power loss")
    for offset in range(1000):
        trace.event("acked", "plain", "log 0", offset)
    trace.event("start", 2)
    story = trace.story()
    assert "the broker is gone (power loss)" in story[0]
    assert "plain is told that its batch is at 999 of log 0" in story[-2]
    assert "the broker starts, for life 2" in story[-1]
    assert len(story) < 50


def test_a_campaign_says_how_far_it_is_how_fast_and_how_long_it_will_take() -> None:
    line = progress(done=1500, seeds=20_000, failed=2, seconds=300.0)
    assert re.fullmatch(r"1500/20000 seeds, 2 failed, 5\.0 a second, 1:01:40 to go", line)
