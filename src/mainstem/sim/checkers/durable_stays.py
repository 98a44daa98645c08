"""D4: below the recovery point nothing is ever cut, whatever has become of the bytes there.

Of a partition whose files were damaged little is promised; but this is: where the damage lies below the recovery point
that is written down, the broker says so and leaves the partition alone, and never makes a shorter log of it. Judged at
each start, by the checkpoint files as the start finds them. A recovery point never goes back, so the highest that was
ever found counts: a broker that forgets it together with the partition would cut the log at the next start. That of a
copy which has not taken its partition's place yet says nothing of the log that it is a copy of.
"""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.storage.partition_folder import COPY

CHECKPOINT = "/recovery-point-offset-checkpoint"
_HEADER_LINES = 2


class DurableStays(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._points: dict[Place, int] = {}

    def forget(self) -> None:
        self._points.clear()

    def starting(self) -> None:
        """The broker is about to start, with the disk as it is."""
        disk = self.world.disk
        for path in disk.files(CHECKPOINT):
            if path.endswith(CHECKPOINT):
                directory = path.removesuffix(CHECKPOINT)
                for place, point in read_points(disk.peek(path)).items():
                    if not disk.exists(f"{directory}/{place[0]}-{place[1]}/{COPY}"):
                        self._points[place] = max(point, self._points.get(place, 0))

    def served(self, broker: Broker) -> None:
        for place in self.world.ledger.damaged:
            point = self._points.get(place, 0)
            end = self.world.written.recovered.get(place)
            if end is None:
                if point:
                    self.world.count("damaged log left alone")
            elif end < point:
                raise Violation(
                    "D4 what was durable is never cut",
                    f"{place[0]}-{place[1]} came back with end {end}, and up to {point} it was durable",
                )


def read_points(data: bytes) -> dict[Place, int]:
    """What a checkpoint file says; nothing where it makes no sense."""
    points: dict[Place, int] = {}
    for line in data.decode(errors="replace").splitlines()[_HEADER_LINES:]:
        words = line.split()
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            points[words[0], int(words[1])] = int(words[2])
    return points
