"""Every partition has one reader, loads are even, and what is owned stays where it is."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from mainstem.client import assignors
from mainstem.client.assignors import (
    ASSIGNORS,
    Assignment,
    Subscription,
    assign_cooperative,
    assign_range,
    assign_round_robin,
    assign_sticky,
    cooperative_user_data,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    read_sticky_user_data,
    sticky_user_data,
)
from mainstem.client.types import TopicPartition

Assign = Callable[[Mapping[str, int], Mapping[str, Subscription]], Assignment]


def tps(text: str) -> list[TopicPartition]:
    return [TopicPartition(each[:-1], int(each[-1])) for each in text.split()]


def owning(topics: str, owned: str = "", generation: int = 1) -> Subscription:
    """A member of a sticky group, of either kind."""
    partitions = tps(owned)
    return Subscription(topics.split(), partitions, generation, sticky_user_data(partitions, generation))


def random_case(rng: random.Random, same_topics: bool) -> tuple[dict[str, int], dict[str, Subscription]]:
    counts = {f"t{number}": rng.randrange(0, 9) for number in range(rng.randrange(1, 5))}
    names = list(counts)
    common = rng.sample(names, rng.randrange(1, len(names) + 1))
    members = {}
    for number in range(rng.randrange(1, 7)):
        topics = common if same_topics else rng.sample(names, rng.randrange(1, len(names) + 1))
        members[f"m{number}"] = owning(" ".join(topics))
    return counts, members


def with_owned(members: Mapping[str, Subscription], owned: Assignment, generation: int) -> dict[str, Subscription]:
    return {
        member: Subscription(each.topics, tuple(owned[member]), generation, sticky_user_data(owned[member], generation))
        for member, each in members.items()
    }


def check(counts: Mapping[str, int], members: Mapping[str, Subscription], assignment: Assignment) -> None:
    given = Counter(each for partitions in assignment.values() for each in partitions)
    wanted = {topic for each in members.values() for topic in each.topics}
    assert given == Counter(TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0)))
    for member, partitions in assignment.items():
        assert {each.topic for each in partitions} <= set(members[member].topics)


def check_even(members: Mapping[str, Subscription], assignment: Assignment) -> None:
    """No partition could move to a member that may read it and has at least two less."""
    for partitions in assignment.values():
        for partition in partitions:
            for other, subscription in members.items():
                if partition.topic in subscription.topics:
                    assert len(assignment[other]) >= len(partitions) - 1


@pytest.mark.parametrize("assign", [assign_range, assign_round_robin, assign_sticky, assign_cooperative])
@pytest.mark.parametrize("seed", range(30))
def test_every_partition_has_one_reader_who_wants_it(assign: Assign, seed: int) -> None:
    for same_topics in (True, False):
        counts, members = random_case(random.Random(seed), same_topics)
        check(counts, members, assign(counts, members))


def test_range_cuts_each_topic_into_consecutive_pieces() -> None:
    members = {name: Subscription(["a", "b"]) for name in ("m2", "m1", "m3")}
    assert assign_range({"a": 7, "b": 2}, members) == {
        "m1": tps("a0 a1 a2 b0"),
        "m2": tps("a3 a4 b1"),
        "m3": tps("a5 a6"),
    }


def test_static_members_come_first_and_by_instance_id() -> None:
    members = {
        "a": Subscription(["t"]),
        "z": Subscription(["t"], instance_id="i1"),
        "y": Subscription(["t"], instance_id="i2"),
    }
    assert assign_range({"t": 3}, members) == {"z": tps("t0"), "y": tps("t1"), "a": tps("t2")}
    assert assign_round_robin({"t": 3}, members) == {"z": tps("t0"), "y": tps("t1"), "a": tps("t2")}


def test_round_robin_goes_on_from_where_it_was() -> None:
    members = {"m1": Subscription(["a"]), "m2": Subscription(["a", "b"]), "m3": Subscription(["b"])}
    assert assign_round_robin({"a": 2, "b": 2}, members) == {"m1": tps("a0"), "m2": tps("a1 b1"), "m3": tps("b0")}


def test_a_topic_that_does_not_exist_gives_nothing() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor.assign({}, {"m": Subscription(["missing"])}) == {"m": []}


@pytest.mark.parametrize("seed", range(60))
def test_sticky_is_even_and_moves_only_what_it_must(seed: int) -> None:
    rng = random.Random(seed)
    for same_topics in (True, False):
        counts, members = random_case(rng, same_topics)
        assignment = assign_sticky(counts, members)
        check_even(members, assignment)
        for generation in range(2, 7):
            again = with_owned(members, assignment, generation)
            unmoved = assign_sticky(counts, again)
            assert {m: set(p) for m, p in unmoved.items()} == {m: set(p) for m, p in assignment.items()}
            change = rng.choice(["join", "leave", "grow"])
            if change == "join":
                again[f"n{generation}"] = Subscription(rng.choice(list(members.values())).topics)
            elif change == "leave" and len(again) > 1:
                del again[rng.choice(list(again))]
            else:
                counts[rng.choice(list(counts))] += 1
            moved = assign_sticky(counts, again)
            check(counts, again, moved)
            check_even(again, moved)
            members, assignment = again, moved


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    members = {"m1": owning("t", "t0 t1 t2 t3"), "m2": owning("t", "t4 t5"), "m3": Subscription(["t"])}
    assignment = assign_sticky({"t": 6}, members)
    assert assignment == {"m1": tps("t0 t1"), "m2": tps("t4 t5"), "m3": tps("t2 t3")}


def test_of_two_claims_the_later_generation_counts() -> None:
    members = {"m1": owning("t", "t0 t1", 4), "m2": owning("t", "t0 t1", 5)}
    assignment = assign_sticky({"t": 4}, members)
    assert assignment == {"m1": tps("t2 t3"), "m2": tps("t0 t1")}
    different = {**members, "m3": owning("t u", "", 5)}
    assert set(tps("t0 t1")) >= set(assign_sticky({"t": 3, "u": 1}, different)["m2"]) != set()


def test_a_partition_that_two_claim_in_one_generation_is_nobodys() -> None:
    members = {"m1": owning("t", "t0 t1", 5), "m2": owning("t", "t0 t2", 5)}
    check({"t": 4}, members, assign_sticky({"t": 4}, members))


@pytest.mark.parametrize("assign", [assign_sticky, assign_cooperative])
def test_a_member_that_missed_a_generation_keeps_what_nobody_claimed_since(assign: Assign) -> None:
    members = {"m0": owning("t", "t0 t1 t2", 3), "m1": owning("t", "t2 t3", 4), "m2": owning("t", "", -1)}
    given = assign({"t": 6}, members)
    assert given["m0"] == tps("t0 t1")
    assert given["m1"] == tps("t2 t3")
    assert given["m2"] == tps("t4 t5")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_members_claim_each_partition_has_one_owner_and_soon(seed: int) -> None:
    """Of any generation, twice, of partitions that are not there: nothing is given to two, or to nobody for good."""
    rng = random.Random(seed)
    counts = {"a": rng.randrange(1, 6), "b": rng.randrange(1, 6)}
    there = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    members: dict[str, Subscription] = {}
    for number in range(rng.randrange(1, 6)):
        topics = rng.choice([["a", "b"], ["a", "b"], ["a"], ["b"]])
        owned = [tp for tp in rng.choices(there, k=rng.randrange(6)) if tp.topic in topics] + tps("a9") * rng.randrange(
            2
        )
        generation = rng.randrange(-1, 4)
        members[f"m{number}"] = Subscription(topics, owned, generation, sticky_user_data(owned, generation))
    readable = sorted(tp for tp in there if any(tp.topic in each.topics for each in members.values()))
    assert sorted(tp for mine in assign_sticky(counts, members).values() for tp in mine) == readable
    for generation in (5, 6, 7):
        given = assign_cooperative(counts, members)
        flat = sorted(tp for mine in given.values() for tp in mine)
        assert len(flat) == len(set(flat))
        for tp in flat:
            (reader,) = (member for member, mine in given.items() if tp in mine)
            holders = {member for member, each in members.items() if tp in each.owned}
            assert reader in holders or not holders
        members = with_owned(members, given, generation)
    assert flat == readable


def test_cooperative_gives_nothing_that_another_still_owns() -> None:
    members = {"m1": owning("t", "t0 t1 t2 t3"), "m2": owning("t", "", -1)}
    first = assign_cooperative({"t": 4}, members)
    assert first == {"m1": tps("t0 t1"), "m2": []}
    second = assign_cooperative({"t": 4}, {"m1": owning("t", "t0 t1", 2), "m2": owning("t", "", 2)})
    assert second == {"m1": tps("t0 t1"), "m2": tps("t2 t3")}


def test_cooperative_settles_in_two_rounds_however_it_begins() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        counts, members = random_case(rng, seed % 2 == 0)
        owned = assign_round_robin(counts, members)
        for generation in (2, 3, 4):
            members = with_owned(members, owned, generation)
            owned = assign_cooperative(counts, members)
        check(counts, members, owned)


def test_the_generation_of_a_cooperative_member_is_read_from_wherever_it_stands() -> None:
    old = tps("t0 t1")
    late = Subscription(["t"], old, 9)
    for data in (cooperative_user_data(old, 3), sticky_user_data(old, 3)):
        early = Subscription(["t"], old, -1, data)
        kept = assign_cooperative({"t": 2}, {"m1": early, "m2": late})
        assert kept["m1"] == []


def test_what_members_tell_each_other_survives_the_way() -> None:
    subscription = Subscription(["b", "a"], tps("a0 a2 b1"), 7, b"data", None, "rack")
    read = decode_subscription(encode_subscription(subscription), "instance")
    assert (read.topics, list(read.owned), read.generation) == (["a", "b"], tps("a0 a2 b1"), 7)
    assert (read.user_data, read.instance_id, read.rack) == (b"data", "instance", "rack")
    assert decode_assignment(encode_assignment(tps("a0 a2 b1"))) == tps("a0 a2 b1")
    assert decode_assignment(b"") == []


def test_newer_versions_are_read_as_the_newest_known() -> None:
    data = encode_subscription(Subscription(["a"], (), 3))
    assert decode_subscription(b"\x00\x09" + data[2:] + b"more").generation == 3


def test_sticky_user_data_is_javas_layout() -> None:
    data = sticky_user_data(tps("a0 a1 b2"), 5)
    assert data.hex() == "00000002000161000000020000000000000001000162000000010000000200000005"
    assert read_sticky_user_data(data) == (tps("a0 a1 b2"), 5)
    assert read_sticky_user_data(data[:-4]) == (tps("a0 a1 b2"), -1)
    assert read_sticky_user_data(b"\x00\x00\x00\x09rubbish") is None


def test_names_are_those_that_kafka_uses() -> None:
    assert list(assignors.ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
