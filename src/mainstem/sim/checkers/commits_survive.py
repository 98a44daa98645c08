"""G4: a committed offset is the last that was acknowledged, or one of unknown outcome; a deleted group is gone."""

from mainstem.broker.app import Broker
from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers import Checker
from mainstem.sim.group_ledger import Commit
from mainstem.sim.ledger import Place, Violation


class CommitsSurvive(Checker):
    def at_end(self, broker: Broker) -> None:
        groups = self.world.groups
        by_place: dict[tuple[str, Place], list[Commit]] = {}
        for commit in groups.commits:
            by_place.setdefault((commit.group, commit.place), []).append(commit)
        for (group, place), commits in by_place.items():
            found = self.world.committed.get((group, place))
            if found is None:
                continue
            allowed = {each.offset for each in commits if each.code is None}
            acked = [each for each in commits if each.code == ErrorCode.NONE]
            if not groups.is_sure:
                allowed |= {each.offset for each in commits} | {-1}
            elif acked:
                allowed.add(acked[-1].offset)
            else:
                allowed.add(-1)
            if found not in allowed:
                raise Violation(
                    "G4 an acknowledged commit survives",
                    f"{group} has {found} for {place}; allowed: {sorted(allowed)[:10]}",
                )
            self.world.count("commit checked")
