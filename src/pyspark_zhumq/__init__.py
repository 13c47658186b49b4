"""Registers the data source: PySpark looks for a DefaultSource in every package named pyspark_*."""

from zhumq.spark.source import ZhumqSource as DefaultSource

__all__ = ["DefaultSource"]
