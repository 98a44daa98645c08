"""Our own client as a workload of the simulator: what a run asks of it is what it can do."""

from random import Random

import pytest

from mainstem.build_info import build_name
from mainstem.sim.__main__ import report
from mainstem.sim.own_client import OwnProducer
from mainstem.sim.tuning import Tuning
from mainstem.sim.world import SAFETY_S, World
from mainstem.storage.errors import StorageError

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="test_replay says that both do the same")

PLACE = ("log", 1)


class Unhurried(Random):
    """Draws long pauses, and of several the last."""

    def random(self) -> float:
        return 0.9


class Alone(World):
    """A world in which nothing goes wrong by itself, and only our producer runs."""

    def _tuning(self) -> Tuning:
        return Tuning()

    def _safety_s(self) -> float:
        return SAFETY_S

    def _add_clients(self) -> None:
        self.nemesis.kinds = []
        self.pace_s = 0.1
        self.add_client("own-producer", lambda client, _: OwnProducer(self, client, Unhurried(), "log", 2).run())
        self.scheduler.later(SAFETY_S - 0.5, self.lose_a_log)

    def lose_a_log(self) -> None:
        """Damage is found in a log, which stays offline; whoever waits for it is in no hurry afterwards."""
        self.ledger.damage(PLACE)
        broker = self.process.broker
        assert broker is not None
        broker.partitions.log_failed(broker.partitions.find(*PLACE), StorageError("log-1", "not what was written"))
        self.pace_s = 2.0


def test_our_producer_comes_to_its_end_though_a_log_stays_offline_from_the_last_moment_on() -> None:
    """It tried for as long as a run waits for its clients, and then paused as after any other send (seed 2665)."""
    result = Alone(1).run()
    assert result.violation is None, report(result)
    assert result.counts["own producer acknowledged"] > 100
    assert result.counts["own producer failed"] == 10, "nothing was sent to the log after it was lost"
