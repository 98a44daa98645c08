"""What goes wrong in a run ends when the run is to be healed."""

import pytest

from mainstem.build_info import build_name
from mainstem.sim.world import World

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")


def served(seed: int) -> World:
    """A run whose broker has started, before anything goes wrong."""
    world = World(seed)
    world.process.format()
    world.process.start()
    assert world.scheduler.run_until(lambda: world.process.is_serving, 10)
    return world


def test_a_slow_disk_is_as_fast_as_before_when_another_one_began_meanwhile() -> None:
    """Seed 300205: it stayed slow for the rest of the run, and compaction did not come to its logs."""
    world = served(0)
    loop = world.process.loop
    assert loop is not None
    world.nemesis._slow_disk()
    world.scheduler.run_for(1.0)
    world.nemesis._slow_disk()
    assert max(loop.disk_delay() for _ in range(50)) > 0.1
    world.scheduler.run_for(2.0)
    assert max(loop.disk_delay() for _ in range(50)) < 0.01


def test_a_machine_that_is_down_does_not_lose_its_power_unseen() -> None:
    """Seed 25: it lost what was not synced, of which nobody was told."""
    world = served(0)
    world.process.kill()
    before = world.disk.fingerprint()
    world.nemesis._die_again_and_again()
    assert world.disk.fingerprint() == before


def test_a_machine_that_got_another_disk_is_not_switched_off_as_if_that_were_synced() -> None:
    """Seed 510939: the broker had stopped cleanly, and what the copy of an older disk had only cached was lost."""
    world = served(0)
    world.take_image()
    world.process.stop()
    assert world.scheduler.run_until(lambda: not world.process.is_up, 60)
    world.older_disk()
    before = world.disk.fingerprint()
    for _ in range(50):
        world.nemesis.switch_off()
    assert world.counts["X3 switched off after a clean stop"] == 0
    assert world.disk.fingerprint() == before
