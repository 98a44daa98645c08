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


def test_a_session_that_runs_keeps_what_was_set_in_it(spark: SparkSession) -> None:
    from mainstem.spark import session

    zone, batch = "spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = {key: spark.conf.get(key) for key in (zone, batch)}
    try:
        spark.conf.set(zone, "Europe/Berlin")
        spark.conf.unset(batch)
        assert session() is spark
        assert spark.conf.get(zone) == "Europe/Berlin"
        assert spark.conf.get(batch) == "65536"
        assert session(settings={zone: "Asia/Tokyo"}).conf.get(zone) == "Asia/Tokyo"
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
