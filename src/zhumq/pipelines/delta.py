"""Spark settings for Delta tables, which need the package delta-spark."""

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from typing import Final

from zhumq.pipelines.document import Mark
from zhumq.pipelines.spec import Pipeline, TableSink, TableSource

FORMAT: Final = "delta"
SCALA_VERSION: Final = "2.13"


def delta_settings(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Settings of a session for pipelines with Delta tables; raises SpecInvalid without the package.

    Settings under `spark` in the files, such as the place of the jars, override these.
    """
    marks = [mark for each in pipelines for mark in _delta_marks(each)]
    if not marks:
        return {}
    if importlib.util.find_spec("delta") is None:
        raise marks[0].wrong(
            "needs the package delta-spark, in a version for this PySpark: pip install delta-spark"
        )
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    version = importlib.metadata.version("delta-spark")
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_{SCALA_VERSION}:{version}",
    }


def _delta_marks(pipeline: Pipeline) -> list[Mark]:
    return [
        each.mark
        for each in (*pipeline.sources, *pipeline.sinks)
        if isinstance(each, TableSource | TableSink) and each.format == FORMAT
    ]
