"""Splits: nothing is lost or read twice, hot partitions are cut, small ones share a task."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.spark.splits import PACK_BYTES, SPLIT_BYTES, Range, even_bytes, limit, plan


def kilobyte(where: tuple[str, int]) -> float:
    return 1000.0


def covered(splits: list[tuple[Range, ...]]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for split in splits:
        for each in split:
            found.setdefault(each.where, []).append((each.start, each.end))
    return {where: sorted(parts) for where, parts in found.items()}


ranges = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 1000), st.integers(0, 100_000)), max_size=12, unique_by=lambda r: r[0]
)


@settings(deadline=None)
@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 5000), st.none() | st.integers(10**5, 10**9))
def test_every_offset_is_in_exactly_one_split(
    given_ranges: list[tuple[int, int, int]], fewest: int | None, most: int | None, split_bytes: int | None
) -> None:
    wanted = [Range("t", number, start, start + size) for number, start, size in given_ranges]
    splits = plan(wanted, kilobyte, fewest, most, split_bytes)
    parts = covered(splits)
    assert set(parts) == {each.where for each in wanted if each.size}
    for each in wanted:
        if not each.size:
            continue
        pieces = parts[each.where]
        assert pieces[0][0] == each.start
        assert pieces[-1][1] == each.end
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
        assert all(start < end for start, end in pieces)
    if most is not None and fewest is None:
        assert all(sum(each.size for each in split) <= most for split in splits)
    if fewest is not None:
        assert len(splits) >= min(fewest, sum(each.size for each in wanted))


def test_one_hot_partition_is_cut_by_its_bytes() -> None:
    splits = plan([Range("hot", 0, 0, 1_000_000)], kilobyte, split_bytes=100_000_000)
    assert len(splits) == 10


def test_pieces_are_not_put_together_again_that_are_small_because_so_was_asked_for() -> None:
    assert len(plan([Range("hot", 0, 0, 1000)], kilobyte, split_bytes=100_000)) == 10


def test_of_several_ranges_those_with_most_records_are_cut_first() -> None:
    splits = plan([Range("t", nth, 0, size) for nth, size in enumerate((10, 14, 14))], kilobyte, min_partitions=4)
    assert sorted(each.size for (each,) in splits) == [7, 7, 10, 14]


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 64))
def test_one_hot_partition_feeds_every_core(megabytes: int, cores: int) -> None:
    hot = Range("hot", 0, 0, megabytes * 1000)
    splits = plan([hot], lambda where: (1 << 20) / 1000, split_bytes=even_bytes(megabytes << 20, cores))
    assert len(splits) >= min(cores, megabytes // (PACK_BYTES >> 20))
    assert len(splits) <= max(cores, -(-megabytes // (SPLIT_BYTES >> 20)))


def test_a_partition_is_whole_where_cutting_is_not_wanted() -> None:
    assert plan([Range("hot", 0, 5, 10**9)], kilobyte, split_bytes=None) == [(Range("hot", 0, 5, 10**9),)]


def test_small_partitions_share_a_task() -> None:
    many = [Range("t", number, 0, 10) for number in range(32)]
    assert len(plan(many, kilobyte)) == 1
    large = [Range("t", number, 0, PACK_BYTES // 1000) for number in range(3)]
    assert len(plan(large, kilobyte)) == 3


def test_a_limit_is_shared_in_proportion_and_leaves_nobody_out() -> None:
    starts = {("t", 0): 0, ("t", 1): 100, ("t", 2): 7}
    ends = {("t", 0): 900, ("t", 1): 200, ("t", 2): 7}
    assert limit(starts, ends, 100) == {("t", 0): 90, ("t", 1): 110, ("t", 2): 7}
    assert limit(starts, ends, 1000) == ends
    thirds = limit({("t", number): 0 for number in range(3)}, {("t", number): 50 for number in range(3)}, 100)
    assert sum(thirds.values()) == 100
    tiny = limit({("t", 0): 0, ("t", 1): 0}, {("t", 0): 10_000, ("t", 1): 1}, 10)
    assert tiny[("t", 1)] == 1
