"""PySpark looks into every package named pyspark_* for a DefaultSource, and registers it."""

from zhumq.spark.source import ZhumqSource as DefaultSource

__all__ = ["DefaultSource"]
