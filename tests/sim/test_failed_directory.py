"""What the simulator's checker of failed directories lets pass, and what not."""

from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.build_info import build_name
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers.failed_directory import FailedDirectory
from mainstem.sim.ledger import Violation

PLACE = ("log", 0)
PATH = "/data/log-0/00000000000000000000.log"

pytestmark = pytest.mark.skipif(build_name() != "interpreted", reason="compiled code takes nothing in a broker's place")


class OneLog:
    directory = "/data/log-0"
    log_end = high_watermark = 1
    failure = None


class Partitions(list[Any]):
    dirs: Any


class Failing:
    """A broker with one directory, and one log in it."""

    def __init__(self) -> None:
        self.home = SimpleNamespace(path="/data", offline=None)
        partitions = Partitions([SimpleNamespace(log=OneLog(), topic_id=b"id")])
        partitions.dirs = SimpleNamespace(directories=[self.home], directory_of=lambda topic, index: self.home)
        self.broker: Any = SimpleNamespace(
            partitions=partitions, image=SimpleNamespace(topics_by_id={b"id": SimpleNamespace()})
        )
        self.failures: list[Violation] = []
        self.world: Any = SimpleNamespace(
            process=SimpleNamespace(broker=self.broker, is_serving=True, is_stopping=False, life=1),
            scheduler=SimpleNamespace(now=0.0),
            topics={"log": (1, {})},
            count=lambda what: None,
            _fail=self.failures.append,
        )
        self.checker = FailedDirectory(self.world)

    def go_on(self, steps: int, step_s: float = 0.1) -> None:
        for _ in range(steps):
            self.world.scheduler.now += step_s
            self.checker.after_step(self.broker)

    def told(self, code: ErrorCode, *, life: int = 1) -> list[str]:
        judge = self.checker.judge(PLACE, life)
        if judge is not None:
            judge(code)
        return [failure.invariant for failure in self.failures]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_directory_with_an_error_is_soon_offline(operation: str) -> None:
    run = Failing()
    run.checker.struck(operation, PATH)
    run.go_on(5)
    run.home.offline = "simulated failure"
    run.go_on(20)
    run = Failing()
    run.checker.struck(operation, PATH)
    with pytest.raises(Violation, match="D5 a failed disk is noticed"):
        run.go_on(20)


def test_a_paused_broker_notices_when_it_goes_on() -> None:
    run = Failing()
    run.checker.struck("write", PATH)
    run.go_on(2, step_s=3.0)


def test_a_topic_that_is_deleted_or_a_broker_that_stops_need_not_notice() -> None:
    run = Failing()
    run.checker.struck("write", PATH)
    run.broker.image.topics_by_id.clear()
    run.go_on(20)
    run = Failing()
    run.checker.struck("write", PATH)
    run.world.process.is_stopping = True
    run.go_on(20)


def test_whoever_asks_for_a_partition_of_an_offline_directory_is_told() -> None:
    run = Failing()
    assert not run.told(ErrorCode.NOT_LEADER_OR_FOLLOWER), "it is not offline"
    run.home.offline = "simulated failure"
    assert not run.told(ErrorCode.NONE, life=0), "another broker was asked"
    assert not run.told(ErrorCode.KAFKA_STORAGE_ERROR)
    assert run.told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == ["D5 a failed directory is told"]
