"""A group of our consumer, Java's and librdkafka's: each partition has one owner through joins, leaves and kills.

Members are processes of their own that write down, on the machine's one monotonic clock, when they were given
partitions and when they gave them back. What they read is written down, too: every record is read by somebody.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from itertools import pairwise
from pathlib import Path

import pytest

import mainstem
from mainstem import Admin
from tests.client.consumer_support import Target, new_group, target
from tests.support.kafka import Kafka, missing

__all__ = ["target"]

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]

HERE = Path(__file__).parent / "members"
PARTITIONS = 6
STEPS = int(os.environ.get("MAINSTEM_GROUP_STEPS", "12"))
SETTLE_S = 60.0


class Member:
    """One process, and what it said."""

    def __init__(self, kind: str, kafka: Kafka, target: Target, group: str, topic: str, assignor: str) -> None:
        self.kind = kind
        arguments = [target.bootstrap, group, topic, assignor]
        if kind == "java":
            command = kafka.command(str(HERE / "Member.java"), *arguments, options=["-Dlog4j2.level=OFF"])
        else:
            command = [sys.executable, str(HERE / "member.py"), kind, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(Path(mainstem.__file__).parents[1])}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.owned: dict[int, int] = {}
        """Partitions it has, and since when."""
        self.intervals: list[tuple[int, int, int]] = []
        """Partition, beginning and end of what it had."""
        self.read: set[tuple[int, int]] = set()
        self.last_line = ""
        self.notes: deque[str] = deque(maxlen=20)
        self.errors: deque[str] = deque(maxlen=100)
        self.broken: str | None = None
        """A line that could not be understood."""
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._listen_to_errors)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            try:
                self._take(line)
            except Exception as error:
                # The pipe is read on all the same: a member that cannot write would stand still.
                self.broken = f"{line!r}: {error!r}"

    def _take(self, line: str) -> None:
        what, *rest = line.split() or [""]
        self.last_line = line
        with self._lock:
            if what == "r":
                partition, offset = map(int, rest)
                self.read.add((partition, offset))
            elif what == "+":
                at, *numbers = map(int, rest)
                for number in numbers:
                    self.owned[number] = at
            elif what == "-":
                at, *numbers = map(int, rest)
                for number in numbers:
                    since = self.owned.pop(number, None)
                    if since is not None:
                        self.intervals.append((number, since, at))
            else:
                # What a commit was refused with, or a word of the virtual machine.
                self.notes.append(line.strip())

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors.append(line)

    def check(self) -> None:
        """A member that is to be there is there, and was understood."""
        assert self.broken is None, f"{self.kind} said {self.broken}"
        assert self._process.poll() is None, f"{self.kind} ended with {self._process.returncode}: {self.told()}"

    def told(self) -> str:
        return (
            f"{self.kind} has {self.partitions()}, said last {self.last_line!r}, and {[*self.notes]} {[*self.errors]}"
        )

    def had(self, number: int) -> str:
        """When it had a partition, and what it read of it."""
        intervals = [(since, until) for each, since, until in self.intervals if each == number]
        read = in_words({each for each in self.all_read() if each[0] == number})
        since = self.owned.get(number)
        return f"{self.kind} had {number} in {intervals}, has it since {since}, read {read or 'nothing'}"

    def stop(self) -> None:
        """Has it leave."""
        self.check()
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.close()
        assert self._process.wait(60) == 0, self.told()
        self._end()

    def kill(self) -> None:
        """kill -9: it says nothing to anybody."""
        self._process.kill()
        self._process.wait(60)
        self._end()

    def put_down(self) -> None:
        """After a failure: nothing of it counts any more."""
        self._process.kill()
        self._process.wait(60)

    def _end(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), f"what {self.kind} said is not read to its end"
        assert self.broken is None, f"{self.kind} said {self.broken}"
        ended = time.monotonic_ns()
        for number, since in self.owned.items():
            self.intervals.append((number, since, ended))
        self.owned = {}

    def partitions(self) -> list[int]:
        with self._lock:
            return sorted(self.owned)

    def all_read(self) -> set[tuple[int, int]]:
        with self._lock:
            return set(self.read)


def settle(members: list[Member]) -> None:
    """Waits until every partition has one owner and every member has a share."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        for member in members:
            member.check()
        owned = [member.partitions() for member in members]
        if sorted(number for part in owned for number in part) == list(range(PARTITIONS)) and all(owned):
            return
        assert time.monotonic() < deadline, [member.told() for member in members]
        time.sleep(0.05)


def in_words(records: set[tuple[int, int]]) -> str:
    by_partition: dict[int, list[int]] = defaultdict(list)
    for number, offset in sorted(records):
        by_partition[number].append(offset)
    return ", ".join(f"{len(each)} of {number} ({each[0]} to {each[-1]})" for number, each in by_partition.items())


def check_one_owner_at_a_time(members: list[Member]) -> None:
    by_partition: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for member in members:
        for number, since, until in member.intervals:
            by_partition[number].append((since, until, member.kind))
    for number, intervals in by_partition.items():
        intervals.sort()
        for (_, ended, before), (began, _, after) in pairwise(intervals):
            assert ended <= began, f"partition {number}: {before} had it until {ended}, {after} from {began}"


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky", "sticky"])
def test_each_partition_has_one_owner_through_joins_leaves_and_kills(target: Target, assignor: str) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    kafka = Kafka()
    kafka.fetch()
    # librdkafka has no assignor of that name.
    kinds = ["ours", "java"] if assignor == "sticky" else ["ours", "java", "librdkafka"]
    rng = random.Random(7)
    topic, group = target.topic(PARTITIONS), new_group()
    written = 0
    everybody: list[Member] = []
    members: list[Member] = []

    def join(kind: str) -> None:
        member = Member(kind, kafka, target, group, topic, assignor)
        everybody.append(member)
        members.append(member)

    try:
        for kind in kinds:
            join(kind)
            settle(members)
        for _ in range(STEPS):
            for number in range(PARTITIONS):
                target.fill(topic, number, 20, first=written)
            written += 20
            step = rng.choice(["join", "leave", "kill"])
            if len(members) <= 2 or (step == "join" and len(members) < 5):
                # Whoever is missing comes back first, so that the mixture stays one.
                have = [member.kind for member in members]
                join(min(kinds, key=have.count))
            else:
                gone = members.pop(rng.randrange(len(members)))
                if step == "kill":
                    gone.kill()
                else:
                    gone.stop()
            settle(members)
        deadline = time.monotonic() + SETTLE_S
        wanted = {(number, offset) for number in range(PARTITIONS) for offset in range(written)}
        while left := wanted - set().union(*(member.all_read() for member in everybody)):
            for member in members:
                member.check()
            if time.monotonic() >= deadline:
                with Admin(bootstrap_servers=target.bootstrap) as admin:
                    told = f"committed: {admin.list_group_offsets(group)}, {admin.describe_groups([group])}"
                who = [member.had(number) for number in sorted({number for number, _ in left}) for member in everybody]
                pytest.fail(f"read by nobody: {in_words(left)}; {who}; {told}; {[each.told() for each in members]}")
            time.sleep(0.1)
        for member in members:
            member.stop()
        members = []
    finally:
        for member in members:
            member.put_down()
    check_one_owner_at_a_time(everybody)
