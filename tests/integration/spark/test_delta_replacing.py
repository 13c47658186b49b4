"""Rows of a Delta table that are replaced by their offsets, while another writer commits."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import DataFrame, SparkSession

from zhumq.model.ids import TopicPartition
from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.delta_log import DeltaLog
from zhumq.pipelines.delta_replacing import Replacing
from zhumq.pipelines.delta_table import DeltaTable, read_delta
from zhumq.spark.ranges import OffsetRange

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.thorough
@pytest.mark.parametrize(("offset", "left"), [(9, [(0, "old"), (1, "new"), (9, "stream")]), (1, [(0, "old"), (1, "new")])])  # fmt: skip
def test_rows_that_the_stream_commits_meanwhile_stay_or_are_replaced_by_their_offsets(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offset: int,
    left: list[tuple[int, str]],
) -> None:
    def rows(*given: tuple[int, str]) -> DataFrame:
        records = [("t", 0, *each) for each in given]
        return spark.createDataFrame(
            records, "topic STRING, partition INT, offset BIGINT, text STRING"
        )

    table = DeltaTable(spark, str(tmp_path / "t"))
    table.append(rows((0, "old"), (1, "old")), query="stream", batch=0)
    ranges = [OffsetRange(place=TopicPartition("t", 0), first_offset=1, until_offset=2)]
    replacing = Replacing(
        table=table, rows=rows((1, "new")), ranges=ranges, query="backfill", batch=0
    )
    commit = DeltaLog.commit

    def commit_second(log: DeltaLog, *given: Any, **facts: Any) -> bool:
        monkeypatch.setattr(DeltaLog, "commit", commit)
        table.append(rows((offset, "stream")), query="stream", batch=1)
        return commit(log, *given, **facts)

    monkeypatch.setattr(DeltaLog, "commit", commit_second)
    assert replacing.carry_out() == 1
    found = [(row["offset"], row["text"]) for row in read_delta(spark, table.path).collect()]
    assert sorted(found) == left
    assert replacing.carry_out() is None
    names = {each.name for each in (tmp_path / "t").glob("*.parquet")}
    assert set(table.log.snapshot().files) < names
    other = DeltaTable(spark, str(tmp_path / "other"))
    other.append(rows((0, "x")).select("text"), query="stream", batch=0)
    unknown = Replacing(table=other, rows=rows((1, "y")), ranges=ranges, query="q", batch=0)
    with pytest.raises(DeltaFailed, match="has no column topic and no partition and no offset, by"):
        unknown.carry_out()
