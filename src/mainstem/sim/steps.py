"""What is looked at after each step of the broker, at each operation of its disk, and at each append to a log.

A step that goes on and on would end no run: nothing else happens meanwhile, and nobody is asked. So what one step may
ask of the disk is bounded; past that the run has failed, and the process ends where it is.

Nothing else in a run happens as often, so this is compiled where the hot modules are, and so are the checkers that are
asked here. Each of them looks at what may have changed and at nothing else.
"""

from collections.abc import Callable
from typing import Final

from mainstem.protocol.batch import BatchView
from mainstem.sim.broker_process import BrokerProcess
from mainstem.sim.checkers import Checker
from mainstem.sim.checkers.failed_directory import FailedDirectory
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.loop import ProcessDied
from mainstem.sim.written import Written

OPERATIONS_PER_STEP_MAX: Final = 100_000
"""Of the disk. The largest steps, starts that build everything anew, have some hundreds in our runs."""


class Steps:
    def __init__(
        self,
        process: BrokerProcess,
        written: Written,
        checkers: list[Checker],
        following: list[Checker],
        failed_directory: FailedDirectory,
        fail: Callable[[Violation], None],
        trace: Callable[..., None],
    ) -> None:
        self._process = process
        self._written = written
        self._checkers = checkers
        self._following = following
        self._failed_directory = failed_directory
        self._fail = fail
        self._trace = trace
        self._operations = 0
        """How many there were in the step under way."""

    def after_step(self) -> None:
        self._operations = 0
        process = self._process
        broker = process.broker
        if broker is None:
            return
        is_serving = process.is_serving
        if self._written.is_stale or not is_serving:
            self._written.look(broker, not is_serving)
        if is_serving:
            for checker in self._checkers:
                checker.after_step(broker)

    def appended(self, place: Place, batch: BatchView) -> None:
        for checker in self._following:
            checker.appended(place, batch)

    def operation(self, operation: str, path: str, position: int, size: int) -> None:
        self._trace("disk", operation, path, position, size)
        self._operations += 1
        if self._operations > OPERATIONS_PER_STEP_MAX:
            self._goes_on(operation, path)
        self._written.operation(operation, path)
        violation = self._failed_directory.check(operation, path)
        if violation is not None:
            self._fail(violation)
        if self._process.crash_after is not None:
            self._process.comes_nearer_to_its_death()

    def _goes_on(self, operation: str, path: str) -> None:
        self._fail(
            Violation(
                "a step ends",
                f"one step of the broker has had {OPERATIONS_PER_STEP_MAX} operations of its disk, and goes on with a "
                f"{operation} of {path}",
            )
        )
        self._process.kill()
        raise ProcessDied
