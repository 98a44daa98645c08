"""What the members of groups know: generations, assignments, and commits with their answers.

A generation is written down when its members get their assignments: one that nobody was assigned anything in is
forgotten by a restart, and its number is given again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mainstem.protocol.errors import ErrorCode
from mainstem.sim.ledger import Place, Violation


@dataclass(slots=True)
class Commit:
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
        self.deletions: list[tuple[str, int]] = []
        """Groups whose deletion was acknowledged, and how many commits had been sent by then."""
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

    def committed(self, commit: Commit, code: ErrorCode) -> None:
        """G5: a commit of a generation that was over when it was sent is not taken."""
        commit.code = code
        if code == ErrorCode.NONE and commit.generation_was_over:
            raise Violation(
                "G5 a stale commit is refused",
                f"{commit.group}: {commit.offset} by {commit.member} of generation {commit.generation} was taken, "
                "though a later generation had begun",
            )
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._count("commit of a stale generation")

    def lost_power(self) -> None:
        """Generations and commits may be gone, and come again."""
        self.is_sure = False
