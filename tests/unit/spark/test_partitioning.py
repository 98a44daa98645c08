"""Keys go where every Kafka producer sends them; rows without one are spread in runs."""

import pyarrow as pa
import pytest

from mainstem.client.partitioner import partition_for_key
from mainstem.spark.partitioning import RUN_ROWS, Partitioner


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
