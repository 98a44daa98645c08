"""Keys go where every Kafka producer sends them; rows without one are spread in runs."""

import numpy as np
import pyarrow as pa
import pytest

from mainstem.client.partitioner import partition_for_key
from mainstem.spark.partitioning import RUN_ROWS, Partitioner, rows_by_partition


def test_a_rows_own_partition_comes_first_and_rows_without_a_key_come_in_runs() -> None:
    keys = pa.array([b"a", None, b"a", None], pa.binary())
    own = pa.array([None, None, 2, 1], pa.int32())
    assigned = Partitioner(1).assign(3, keys, own, "t", 4)
    by_key = partition_for_key(b"a", 3)
    assert assigned.tolist() == [by_key, 1, 2, 1]
    runs = Partitioner(0).assign(2, None, None, "t", RUN_ROWS * 2 + 1)
    assert [int(each) for each in (runs[0], runs[RUN_ROWS], runs[-1])] == [0, 1, 0]


def test_a_partition_that_there_is_not_is_told() -> None:
    with pytest.raises(ValueError, match="partition: t has partitions 0 to 2; a row says 3"):
        Partitioner(0).assign(3, None, pa.array([0, 3], pa.int32()), "t", 2)


@pytest.mark.parametrize("count", [1, 4, 40_000])
def test_rows_are_put_together_by_partition_in_their_order(count: int) -> None:
    assigned = np.random.default_rng(1).integers(0, count, 1000)
    found: list[int] = []
    for number, rows in rows_by_partition(assigned, count):
        mine = list(range(1000)) if rows is None else rows.to_pylist()
        assert mine == [row for row in range(1000) if assigned[row] == number]
        found.append(number)
    assert found == sorted(set(assigned.tolist()))


def test_all_rows_of_one_partition_need_no_numbers() -> None:
    assert list(rows_by_partition(np.full(5, 3), 4)) == [(3, None)]
