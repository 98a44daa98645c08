"""G2: each member of a group is given the part that the leader of its generation has named for it, and no other.

Who leads shares out every partition once (`group_members`), so that with this every partition has an owner. What a
leader named is noted before it is sent; a leader that was not answered may name the same again.
"""

from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation

Parts = dict[str, bytes]
"""By member: its instance id if it has one, or its member id."""


class PartsAreGiven(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._named: dict[tuple[str, int], dict[str, list[bytes]]] = {}
        """By group and generation. A generation that a power loss took may come again: then all that was ever named."""

    def named(self, group: str, generation: int, parts: Parts) -> None:
        named = self._named.setdefault((group, generation), {})
        for who, part in parts.items():
            named.setdefault(who, []).append(part)

    def given(self, group: str, generation: int, who: str, part: bytes) -> None:
        named = self._named.get((group, generation), {}).get(who, [b""])
        if part not in named:
            raise Violation(
                "G2 a member is given its part",
                f"{who} is given {list(part)} in generation {generation} of {group}; its leader has named "
                f"{' or '.join(str(list(each)) for each in named)}",
            )
        self.world.count("part of a member checked")
