"""D5: after the first failed write or fsync on a directory nothing more is written to its logs."""

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
        folder = path.rpartition("/")[0]
        if path.endswith(".log") and operation in ("write", "sync"):
            self._failed.setdefault(folder, f"{operation} of {path}")

    def before_operation(self, operation: str, path: str) -> None:
        if self._failed and operation in ("write", "sync") and path.endswith(".log"):
            first = self._failed.get(path.rpartition("/")[0])
            if first is not None:
                raise Violation("D5 a failed log is left alone", f"{operation} of {path} after the failed {first}")
