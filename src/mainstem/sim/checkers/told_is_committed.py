"""G8: who asks where a group is, is told of nothing that is not yet below the high watermark of its coordinator's log.

An answer that writes nothing waits for all that was written before it. Which record it tells of is known by the tag of
its commit. It is looked at when the answer arrives, in the same life of the broker: a high watermark only rises, so
what it has not passed then it had not passed when the answer was given.
"""

from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Place, Violation
from mainstem.sim.written import OFFSETS_TOPIC


class ToldIsCommitted(Checker):
    def told(self, group: str, place: Place, tag: str, life: int) -> None:
        """A client is told an offset that was committed with this tag."""
        broker = self.world.process.broker
        if broker is None or life != self.world.process.life:
            return
        for logged in reversed(self.world.groups.logged.get((group, place), ())):
            if logged.commit is None or logged.commit.tag != tag:
                continue
            partition = broker.partitions.get(OFFSETS_TOPIC, logged.index)
            if partition is None:
                return
            if logged.at >= partition.high_watermark:
                raise Violation(
                    "G8 what is told is committed",
                    f"{group} is told {logged.offset} for {place}, which stands at {logged.at} of {partition}, whose "
                    f"high watermark is {partition.high_watermark}",
                )
            self.world.count("told offset looked at")
            return
