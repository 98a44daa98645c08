"""G4: the offset a group has is the last one in its coordinator's log, where every acknowledged one is; a deleted group
is gone. What a power loss has taken from that log is known record by record (`GroupLedger.cut`)."""

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers import Checker
from mainstem.sim.group_ledger import GONE, SURVIVES
from mainstem.sim.ledger import Violation
from mainstem.sim.tuning import SHARED_GROUP


class CommitsSurvive(Checker):
    def at_end(self, broker: Broker) -> None:
        groups = self.world.groups
        for (group, place), (found, before) in self.world.observer.committed.items():
            if group == SHARED_GROUP:
                continue  # transactions commit there, too: `offsets_follow`
            last = groups.last(group, place)
            expected = GONE if last is None else last.offset
            if found not in (before, expected):  # its time may be over since
                raise Violation(SURVIVES, f"{group} has {found} for {place}; the last in the log is {expected}")
            self.world.count("commit checked")
        for commit in groups.commits:
            if commit.code == ErrorCode.NONE and commit.offset != GONE and not (commit.is_logged or commit.was_lost):
                raise Violation(SURVIVES, f"{commit.group}: {commit.tag} was acknowledged and is nowhere")
