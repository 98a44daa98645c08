"""What the members of groups know: generations, assignments, and commits with their answers; and what of it is logged.

A generation is written down when its members get their assignments: one that nobody was assigned anything in is
forgotten by a restart, and its number is given again.

Each commit carries a tag, its metadata, by which it is found in the coordinator's log: so the order of commits is that
of the log, and what a power loss took is exactly what lay past the log's new end.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

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

GONE: Final = -1
"""The offset of a group that has none."""
SURVIVES: Final = "G4 an acknowledged commit survives"


class OffsetAndEpoch(NamedTuple):
    """Where a group is, and the leader epoch that was named with it."""

    offset: int
    leader_epoch: int


NOWHERE: Final = OffsetAndEpoch(GONE, -1)


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
    tag: str
    sent_after: int
    """How many changes had been logged, of all groups, when it was sent."""
    code: ErrorCode | None = None
    """None while nobody knows whether it was carried out."""
    is_logged: bool = False
    was_lost: bool = False


@dataclass(slots=True, frozen=True)
class Logged:
    """A change of a group's offset in the log of its coordinator: a commit, or a tombstone."""

    index: int
    at: int
    number: int
    """Its place in the order of all changes of all groups."""
    position: OffsetAndEpoch
    timestamp_ms: int
    commit: Commit | None

    @property
    def offset(self) -> int:
        return self.position.offset


class GroupLedger:
    def __init__(self, count: Callable[[str], None]) -> None:
        self.commits: list[Commit] = []
        self.loses_nothing = True
        """Whether each acknowledgement is durable."""
        self.logged: dict[tuple[str, Place], list[Logged]] = {}
        """In the order of the log, as far as it is still there."""
        self._course: dict[tuple[str, Place], list[OffsetAndEpoch]] = {}
        """Everywhere that each group was, in the order of time, those that were lost since included."""
        self._by_tag: dict[str, Commit] = {}
        self._logged_count = 0
        self._generations: dict[str, list[tuple[int, int, int]]] = {}
        """Of each group the generations that are logged: where, and which; -1 for its tombstone."""
        self._joined: dict[tuple[str, int, int], int] = {}
        """By group, life of the broker and term of the coordinator the newest generation that somebody was told of. It
        is logged when it is assigned: a coordinator that begins anew counts from what its log has."""
        self.term_of: Callable[[str], int] = lambda group: 0
        """The term of a group's coordinator."""
        self._assigned: dict[str, int] = {}
        self._assignments: dict[tuple[str, int], dict[str, list[int]]] = {}
        self._counts_from: dict[str, int] = {}
        """The life of the broker from which on it counts what a group's members were told: the log was cut before."""
        self._forgot_at = 0
        self._gone: Counter[str] = Counter()
        self._count = count

    # What members are told

    def times_gone(self, group: str) -> int:
        """How often the group was gone until now: its generations began anew, and who was paused hears of old ones."""
        return self._gone[group]

    def joined(self, group: str, generation: int, life: int, gone: int = 0) -> None:
        if gone != self._gone[group]:
            return
        key = (group, life, self.term_of(group))
        self._joined[key] = max(self._joined.get(key, -1), generation)

    def assigned(
        self, group: str, generation: int, member: str, partitions: list[int], life: int, gone: int = 0
    ) -> None:
        """G1: within one generation no partition has two owners."""
        if life < max(self._counts_from.get(group, 0), self._forgot_at) or gone != self._gone[group]:
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
        over = self.is_over(group, generation, life)
        tag = f"commit {len(self.commits)}"
        commit = Commit(group, generation, member, place, offset, life, over, tag, self._logged_count)
        self.commits.append(commit)
        self._by_tag[tag] = commit
        return commit

    def is_over(self, group: str, generation: int, life: int) -> bool:
        """Whether somebody has been told of a later generation."""
        newest = max(self._assigned.get(group, -1), self._joined.get((group, life, self.term_of(group)), -1))
        return generation >= 0 and newest > generation

    def committed(self, commit: Commit, code: ErrorCode) -> None:
        """G5: a commit of a generation that was over when it was sent is not taken. G8: what is answered is logged."""
        commit.code = None if code in UNKNOWN_OUTCOME else code
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._count("commit of a stale generation")
        if code != ErrorCode.NONE:
            if commit.code is not None and commit.is_logged:
                raise Violation(
                    "G5 what is refused is not done",
                    f"{commit.group}: {commit.tag} was refused, {code.name}, and is logged",
                )
            return
        if commit.generation_was_over:
            raise Violation(
                "G5 a stale commit is refused",
                f"{commit.group}: {commit.offset} by {commit.member} of generation {commit.generation} was taken, "
                "though a later generation had begun",
            )
        if commit.life < self._forgot_at:
            commit.was_lost = True
        elif commit.offset == GONE:
            self._deleted(commit)
        elif not commit.is_logged and not commit.was_lost:
            raise Violation(
                "G8 an answer follows its record", f"{commit.group}: {commit.tag} is acknowledged, not logged"
            )
        elif commit.was_lost and self.loses_nothing:
            raise Violation(SURVIVES, f"{commit.group}: {commit.offset} was acknowledged and is lost")

    def _deleted(self, deletion: Commit) -> None:
        """Whatever it had when its deletion was asked for is buried."""
        logged = self.logged.get((deletion.group, deletion.place))
        if not logged or logged[-1].offset == GONE or logged[-1].number >= deletion.sent_after:
            return
        if deletion.life < self._counts_from.get(deletion.group, 0) and not self.loses_nothing:
            return  # the tombstone went with the power
        raise Violation(SURVIVES, f"{deletion.group} was deleted, and has {logged[-1].offset} for {deletion.place}")

    # What is in the log

    def deletion(self, group: str) -> Commit | None:
        """The last request to delete it of which nobody knows yet what came of it."""
        for each in reversed(self.commits):
            if each.group == group and each.offset == GONE and each.code is None:
                return each
        return None

    def knows(self, group: str) -> bool:
        return any(each.group == group for each in self.commits)

    def names(self) -> list[str]:
        """The groups that somebody has committed for, or been a member of."""
        return list(dict.fromkeys([*(commit.group for commit in self.commits), *self._generations]))

    def had_members(self, group: str) -> bool:
        return any(each.group == group and each.generation >= 0 for each in self.commits) or group in self._generations

    def log_commit(
        self, group: str, place: Place, tag: str, position: OffsetAndEpoch, timestamp_ms: int, index: int, at: int
    ) -> None:
        commit = self._by_tag.get(tag)
        if commit is not None:
            if commit.code not in (None, ErrorCode.NONE):
                raise Violation("G5 what is refused is not done", f"{group}: {tag} was refused, and is logged at {at}")
            commit.is_logged = True
            commit.was_lost = False
        self._log(group, place, index, at, position, timestamp_ms, commit)

    def log_tombstone(self, group: str, place: Place, index: int, at: int, deletion: Commit | None) -> None:
        """An offset is gone: by this request, or because its time was over."""
        self._log(group, place, index, at, NOWHERE, 0, deletion)

    def _log(
        self,
        group: str,
        place: Place,
        index: int,
        at: int,
        position: OffsetAndEpoch,
        timestamp_ms: int,
        commit: Commit | None,
    ) -> None:
        logged = Logged(index, at, self._logged_count, position, timestamp_ms, commit)
        self._logged_count += 1
        self.logged.setdefault((group, place), []).append(logged)
        self.course(group, place).append(position)

    def last(self, group: str, place: Place) -> Logged | None:
        logged = self.logged.get((group, place))
        return logged[-1] if logged else None

    def course(self, group: str, place: Place) -> list[OffsetAndEpoch]:
        """Everywhere that the group was there, until now: a power loss that took the last one is a step of its own.

        Who has been told where the group is since the list had a certain length was told the last of that time, or
        one that came after it.
        """
        return self._course.setdefault((group, place), [NOWHERE])

    def log_generation(self, group: str, generation: int, index: int, at: int) -> None:
        """A generation is written down; -1 for a group that is gone. Who joins next makes it again, from 1."""
        self._generations.setdefault(group, []).append((index, at, generation))
        if generation < 0:
            self._gone[group] += 1
            self._roll_back(group, -1)

    def _roll_back(self, group: str, generation: int) -> None:
        """Whatever was said of later generations no longer counts."""
        if self._assigned.get(group, -1) > generation:
            self._assigned.pop(group)
            if generation >= 0:
                self._assigned[group] = generation
        for told in [told for told in self._joined if told[0] == group]:
            del self._joined[told]
        for key in [key for key in self._assignments if key[0] == group and key[1] > generation]:
            del self._assignments[key]

    def cut(self, index: int, end: int, life: int) -> None:
        """The log of a coordinator came back with this end: what was past it is gone, and nothing else."""
        for key, logged in self.logged.items():
            before = len(logged)
            while logged and logged[-1].index == index and logged[-1].at >= end:
                self._lost(logged.pop())
            if len(logged) < before:
                self.course(*key).append(logged[-1].position if logged else NOWHERE)
        for group, generations in self._generations.items():
            count = len(generations)
            while generations and generations[-1][0] == index and generations[-1][1] >= end:
                generations.pop()
            if len(generations) < count:
                self._roll_back(group, generations[-1][2] if generations else -1)
                self._counts_from[group] = life

    def _lost(self, logged: Logged) -> None:
        commit = logged.commit
        if commit is None:
            return
        if commit.code == ErrorCode.NONE and self.loses_nothing:
            raise Violation(SURVIVES, f"{commit.group}: {commit.tag}, {commit.offset}, was acknowledged and is lost")
        commit.is_logged = False
        commit.was_lost = True
        self._count("commit lost with the power")

    def forget(self, life: int) -> None:
        """The coordinator has another disk; its log is read anew."""
        self.logged.clear()
        for course in self._course.values():
            course.append(NOWHERE)
        self._generations.clear()
        self._joined.clear()
        self._assigned.clear()
        self._assignments.clear()
        self._counts_from.clear()
        self._forgot_at = life
        for commit in self.commits:
            commit.is_logged = False
            commit.was_lost = True
