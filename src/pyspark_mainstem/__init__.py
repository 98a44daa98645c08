"""Where Spark looks for data sources: every package `pyspark_…` that has a `DefaultSource` is one (SPARK-45917)."""

from mainstem.spark.source import MainstemSource as DefaultSource

__all__ = ["DefaultSource"]
