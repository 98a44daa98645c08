"""D5: after the first failed write to a log nothing more is written to it.

A flush that a thread had begun may still go on; a write that is tried after the failed one would land behind a hole.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class FailedDirectory(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._failed: dict[str, str] = {}

    def died(self, broker: Broker | None, how: str) -> None:
        self._failed.clear()

    def struck(self, operation: str, path: str) -> None:
        """A fault made this operation fail."""
        if operation == "write" and path.endswith(".log"):
            self._failed.setdefault(path.rpartition("/")[0], path)

    def check(self, operation: str, path: str) -> Violation | None:
        """Whether this operation breaks the promise."""
        if self._failed and operation == "write" and path.endswith(".log"):
            first = self._failed.get(path.rpartition("/")[0])
            if first is not None:
                return Violation("D5 a failed log is left alone", f"{path} was written after a write of {first} failed")
        return None
