"""G5: who is a member of the generation in force is heard, and who was replaced under its instance id is not.

- A commit or a heartbeat is refused as of an unknown member or another generation. If the coordinator has that member
  in that generation when the answer arrives, it had it when it answered: ids are given once, and generations rise. Both
  are so within one life of the broker.
- Once somebody has been told that it is a static member under a new id, the id that it replaced commits nothing.
"""

from mainstem.protocol.errors import ErrorCode
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation

NOT_A_MEMBER = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class MembersAreHeard(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._ids: dict[tuple[str, str], list[tuple[str, int]]] = {}
        """By group and instance id the member ids that were given, with the life of the broker that gave them."""

    def answered(self, group: str, generation: int, member_id: str, life: int, code: ErrorCode) -> None:
        """A member that joined in this life of the broker was answered so, in the same one."""
        broker = self.world.process.broker
        if code not in NOT_A_MEMBER or broker is None or life != self.world.process.life:
            return
        for shard in broker.groups.runtime.shards.values():
            found = shard.machine.groups.get(group) if shard.is_serving else None
            if found is not None and found.generation == generation and member_id in found.members:
                raise Violation(
                    "G5 a member is heard",
                    f"{member_id} is in generation {generation} of {group}, and was told {code.name}",
                )
        self.world.count("refusal of a member looked at")

    def took(self, group: str, instance: str, member_id: str, life: int) -> None:
        """Somebody was told that it is this static member now, under this id."""
        ids = self._ids.setdefault((group, instance), [])
        if not ids or ids[-1][0] != member_id:
            ids.append((member_id, life))

    def replaced(self, group: str, instance: str, life: int) -> str | None:
        """An id of this static member that surely is no longer: another was given in this life of the broker."""
        ids = self._ids.get((group, instance), [])
        return ids[-2][0] if len(ids) > 1 and ids[-1][1] == life else None

    def zombie_answered(self, group: str, member_id: str, life: int, code: ErrorCode) -> None:
        if life != self.world.process.life:
            return
        self.world.count("commit of a replaced member")
        if code is ErrorCode.NONE:
            raise Violation("G5 who was replaced commits nothing", f"{group}: {member_id} has another id now")
