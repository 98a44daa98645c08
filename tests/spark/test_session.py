"""The session as it is made: what Spark's own processes see of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]


def where_pyspark_is(_: Iterable[int]) -> Iterable[str]:
    import pyspark

    yield pyspark.__file__


def test_workers_import_pyspark_as_it_is_installed_and_not_from_a_zip(spark: SparkSession) -> None:
    (found,) = spark.sparkContext.parallelize([0], 1).mapPartitions(where_pyspark_is).collect()
    assert ".zip" not in found
