"""Our assignors beside Kafka's own, on random groups: the same result, or one that is as even and keeps as much."""

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mainstem.client.assignors import ASSIGNORS, Assignment, Subscription, cooperative_user_data, sticky_user_data
from mainstem.client.types import TopicPartition
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.campaign, pytest.mark.kafka]

CASES = 400


class Case:
    def __init__(self, assignor: str, counts: dict[str, int], members: dict[str, Subscription]) -> None:
        self.assignor = assignor
        self.counts = counts
        self.members = members

    def line(self) -> str:
        fields = [self.assignor, ",".join(f"{topic}:{count}" for topic, count in self.counts.items())]
        for member, each in self.members.items():
            owned = ",".join(f"{tp.topic}/{tp.partition}" for tp in each.owned)
            data = (each.user_data or b"").hex()
            fields.append(f"{member};{each.instance_id or ''};{','.join(each.topics)};{owned};{each.generation};{data}")
        return "\t".join(fields)


def make_case(rng: random.Random, assignor: str, same_topics: bool) -> Case:
    counts = {f"t{number}": rng.randrange(1, 9) for number in range(rng.randrange(1, 5))}
    names = sorted(counts)
    common = sorted(rng.sample(names, rng.randrange(1, len(names) + 1)))
    left = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    rng.shuffle(left)
    members = {}
    generation = rng.randrange(3, 9)
    for number in range(rng.randrange(1, 7)):
        topics = common if same_topics else sorted(rng.sample(names, rng.randrange(1, len(names) + 1)))
        owned: list[TopicPartition] = []
        is_new = assignor in ("range", "roundrobin") or rng.random() < 0.3
        if not is_new:
            owned = [left.pop() for _ in range(min(len(left), rng.randrange(0, 8)))]
        owned = sorted(tp for tp in owned if tp.topic in topics)
        # Some have missed a generation or two.
        mine = -1 if is_new else generation - rng.choice((0, 0, 1, 2))
        data = None
        if not is_new:
            data = (sticky_user_data if assignor == "sticky" else cooperative_user_data)(owned, mine)
        instance = f"i{rng.randrange(100)}-{number}" if rng.random() < 0.3 else None
        in_subscription = owned if assignor == "cooperative-sticky" else []
        members[f"m{number}"] = Subscription(topics, in_subscription, mine, data, instance)
    # The leader asks for the topics that somebody wants, and Java's take that for granted.
    wanted = {topic for each in members.values() for topic in each.topics}
    return Case(assignor, {topic: count for topic, count in counts.items() if topic in wanted}, members)


def ask_java(kafka: Kafka, cases: list[Case]) -> list[Assignment]:
    source = Path(__file__).with_name("Assignors.java")
    lines = "".join(case.line() + "\n" for case in cases)
    command = kafka.command(str(source), options=["-Dlog4j2.level=OFF"])
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answers = []
    for line in done.stdout.splitlines():
        assignment = {}
        for part in line.split("\t"):
            member, _, names = part.partition(";")
            assignment[member] = [
                TopicPartition(name.split("/")[0], int(name.split("/")[1])) for name in names.split(",") if name
            ]
        answers.append(assignment)
    assert len(answers) == len(cases)
    return answers


def kept(members: Mapping[str, Subscription], claims: Mapping[str, list[TopicPartition]], given: Assignment) -> int:
    return sum(len(set(claims[member]) & set(given[member])) for member in members)


def spread(given: Assignment) -> list[int]:
    return sorted(len(partitions) for partitions in given.values())


def claims_of(case: Case) -> dict[str, list[TopicPartition]]:
    from mainstem.client.assignors import read_sticky_user_data

    claims = {}
    for member, each in case.members.items():
        told = read_sticky_user_data(each.user_data) if case.assignor == "sticky" and each.user_data else None
        claims[member] = list(told[0]) if told is not None else list(each.owned)
    return claims


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_plain_assignors_give_exactly_what_javas_give(kafka: Kafka, assignor: str) -> None:
    rng = random.Random(assignor)
    cases = [make_case(rng, assignor, rng.random() < 0.5) for _ in range(CASES)]
    for case, theirs in zip(cases, ask_java(kafka, cases), strict=True):
        assert ASSIGNORS[assignor].assign(case.counts, case.members) == theirs, case.line()


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_sticky_assignors_are_as_even_as_javas_and_keep_as_much(kafka: Kafka, assignor: str) -> None:
    rng = random.Random(assignor)
    cases = [make_case(rng, assignor, number % 2 == 0) for number in range(CASES)]
    behind = 0
    for number, (case, theirs) in enumerate(zip(cases, ask_java(kafka, cases), strict=True)):
        ours = ASSIGNORS[assignor].assign(case.counts, case.members)
        claims = claims_of(case)
        mine, java = kept(case.members, claims, ours), kept(case.members, claims, theirs)
        if number % 2 == 0:
            # Everybody wants the same: what the best is is known, and both give it.
            assert mine == java, case.line()
            if assignor == "sticky":
                assert spread(ours) == spread(theirs), case.line()
            else:
                # Who waits for what another still has depends on ties; how much waits does not.
                assert sum(spread(ours)) == sum(spread(theirs)), case.line()
        else:
            squares = sum(count * count for count in spread(ours)), sum(count * count for count in spread(theirs))
            if assignor == "sticky":
                assert squares[0] <= squares[1], case.line()
            behind += mine < java
    # With different topics neither finds the fewest moves each time; ours must not be the worse guess.
    assert behind <= CASES // 20
