"""What the members of groups know: generations, assignments, and commits with their answers.

A generation is written down when its members get their assignments: one that nobody was assigned anything in is
forgotten by a restart, and its number is given again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mainstem.protocol.errors import ErrorCode
from mainstem.sim.ledger import Place, Violation

UNKNOWN_OUTCOME: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Said of a write that was not committed in time, or whose coordinator gave up: it may be in the log all the same."""


EXPIRY: Final = "the coordinator's clock"
"""Who takes back an offset that has expired."""


@dataclass(slots=True)
class Commit:
    """Of an offset; -1 stands for the deletion of the group."""

    group: str
    generation: int
    member: str
    place: Place
    offset: int
    life: int
    generation_was_over: bool
    """Whether somebody had already been told of a later generation when it was sent."""
    code: ErrorCode | None = None
    """None while nobody knows whether it was carried out."""


class GroupLedger:
    def __init__(self, count: Callable[[str], None]) -> None:
        self.commits: list[Commit] = []
        self.is_sure = True
        """Whether no generation can have been lost with the power."""
        self._joined: dict[tuple[str, int], int] = {}
        self._assigned: dict[str, int] = {}
        self._assignments: dict[tuple[str, int], dict[str, list[int]]] = {}
        self._count = count

    def joined(self, group: str, generation: int, life: int) -> None:
        self._joined[group, life] = max(self._joined.get((group, life), -1), generation)

    def assigned(self, group: str, generation: int, member: str, partitions: list[int]) -> None:
        """G1: within one generation no partition has two owners."""
        if not self.is_sure:
            return
        self._assigned[group] = max(self._assigned.get(group, -1), generation)
        owners = self._assignments.setdefault((group, generation), {})
        owners[member] = partitions
        seen: dict[int, str] = {}
        for owner, owned in owners.items():
            for partition in owned:
                if partition in seen:
                    raise Violation(
                        "G1 one owner",
                        f"{group} generation {generation}: {partition} belongs to {seen[partition]} and to {owner}",
                    )
                seen[partition] = owner

    def committing(self, group: str, generation: int, member: str, place: Place, offset: int, life: int) -> Commit:
        newest = max(self._assigned.get(group, -1), self._joined.get((group, life), -1))
        over = generation >= 0 and newest > generation and self.is_sure
        commit = Commit(group, generation, member, place, offset, life, over)
        self.commits.append(commit)
        return commit

    def is_being_deleted(self, group: str) -> bool:
        """Whether somebody ever asked for that: such a request may be carried out late."""
        return any(commit.group == group and commit.offset < 0 and commit.member != EXPIRY for commit in self.commits)

    def expired(self, group: str, place: Place) -> None:
        """Its time was over. Whether that survives the next crash nobody can tell."""
        self.commits.append(Commit(group, -1, EXPIRY, place, -1, 0, generation_was_over=False))

    def begins_anew(self, group: str) -> None:
        """The coordinator has forgotten it: who joins next makes it again, from generation 1."""
        self._assigned.pop(group, None)
        for key in [key for key in self._joined if key[0] == group]:
            del self._joined[key]
        for key in [key for key in self._assignments if key[0] == group]:
            del self._assignments[key]

    def committed(self, commit: Commit, code: ErrorCode) -> None:
        """G5: a commit of a generation that was over when it was sent is not taken."""
        commit.code = None if code in UNKNOWN_OUTCOME else code
        if code == ErrorCode.NONE and commit.generation_was_over:
            raise Violation(
                "G5 a stale commit is refused",
                f"{commit.group}: {commit.offset} by {commit.member} of generation {commit.generation} was taken, "
                "though a later generation had begun",
            )
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._count("commit of a stale generation")

    def forget(self) -> None:
        """The coordinator has another disk, and begins anew for all that anybody knows."""
        self._joined.clear()
        self._assigned.clear()
        self._assignments.clear()
        self.is_sure = False

    def lost_power(self) -> None:
        """Generations and commits may be gone, and come again."""
        self.is_sure = False
