"""Merged tables on real Spark: any order of changes gives one result, once, which another engine reads."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import KeptDisplay
from pyspark.sql import SparkSession

from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.delta_log import now_ms
from zhumq.pipelines.delta_table import read_delta
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.merge_table import MergeTable
from zhumq.pipelines.runner import PipelineFailed, RunOptions, run_pipeline
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.views import new_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHANGES = "id INT, name STRING, _sequence BIGINT, _deleted BOOLEAN"
Change = tuple[int, str | None, int, bool]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = new_session(spark)
    own.conf.set("spark.sql.shuffle.partitions", "1")
    return own


class Merges:
    """Merges changes of customers, batch after batch."""

    def __init__(self, session: SparkSession, path: Path, scd_type: int) -> None:
        self.session = session
        self.path = path
        # Files of several partitions that one task writes have the same name.
        self.table = MergeTable(
            session,
            str(path),
            keys=("id",),
            scd_type=scd_type,
            partition_by=("name",) if scd_type == 1 else (),
        )
        self.batch = -1

    def merge(self, changes: Sequence[Change], *, batch: int | None = None) -> int:
        self.batch = self.batch + 1 if batch is None else batch
        rows = self.session.createDataFrame(list(changes), CHANGES)
        return self.table.merge(rows, query="q", batch=self.batch)

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        found = read_delta(self.session, str(self.path)).select(*names).collect()
        return sorted((tuple(row) for row in found), key=repr)


def order(change: Change) -> tuple[int, bool, str]:
    return change[2], change[3], change[1] or ""


def newest_rows(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """The model of SCD type 1."""
    last = {each[0]: each for each in sorted(changes, key=order)}
    return sorted(((each[0], each[1], each[2]) for each in last.values() if not each[3]), key=repr)


def versions(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """The model of SCD type 2."""
    found = []
    for key in {each[0] for each in changes}:
        events = {each[2]: each for each in sorted(changes, key=order) if each[0] == key}
        times = [*sorted(events), None]
        for begin, end in pairwise(times):
            assert begin is not None
            if not events[begin][3]:
                found.append((key, events[begin][1], begin, end))
    return sorted(found, key=repr)


def some_changes(draw: random.Random, count: int) -> list[Change]:
    found: list[Change] = []
    for _ in range(count):
        deleted = draw.random() < 0.3
        name = None if deleted else draw.choice("abcdef")
        found.append((draw.randrange(6), name, draw.randrange(12), deleted))
    return found


@pytest.mark.long
@pytest.mark.parametrize("scd_type", [1, 2])
def test_changes_in_any_order_give_the_rows_of_a_plain_list(
    session: SparkSession, tmp_path: Path, scd_type: int
) -> None:
    draw = random.Random(scd_type)
    changes = some_changes(draw, 50)
    merges = Merges(session, tmp_path / "t", scd_type)
    for start in range(0, 50, 25):
        merges.merge(changes[start : start + 25])
        seen = changes[: start + 25]
        if scd_type == 1:
            assert merges.rows("id", "name", "_sequence") == newest_rows(seen)
        else:
            assert merges.rows("id", "name", "_valid_from", "_valid_to") == versions(seen)


@pytest.mark.thorough
def test_another_engine_reads_the_same_rows_and_a_repeated_batch_changes_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    merges = Merges(session, tmp_path / "t", 2)
    merges.merge([(number % 4, f"n{number}", number, number % 5 == 4) for number in range(20)])
    log = merges.table.table.log
    log.write_checkpoint(log.snapshot(), now_ms())
    (tmp_path / "t/_delta_log/00000000000000000000.json").unlink()
    merges.merge([(1, "late", 3, False), (9, "new", 30, False)])
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    found = [tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()]
    assert sorted(found, key=repr) == merges.rows("id", "name", "_valid_from", "_valid_to")
    assert table.version() == 1
    assert len(found) == 18
    before = sorted((tmp_path / "t").rglob("*.*"))
    assert merges.merge([(1, "again", 99, False)], batch=0) == 0
    assert sorted((tmp_path / "t").rglob("*.*")) == before


def run(
    spark: SparkSession, folder: Path, source: list[dict[str, Any]], sink: str, steps: str
) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in source)
    (folder / "in" / "rows.json").write_text(lines)
    text = f"""\
name: customers
trigger: batch
sources:
  records: {{table: {folder}/in, format: json}}
steps:
  - name: changes
    sql: |
      {steps}
sinks:
  merged:
    merge: {folder}/table
    keys: [id]
    {sink}
"""
    pipeline = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    run_pipeline(spark, pipeline, RunOptions(state_dir=folder / "state"), KeptDisplay())


DEBEZIUM = """SELECT change.* FROM (SELECT from_json(value, 'before STRUCT<id: INT, city: STRING>,
      after STRUCT<id: INT, city: STRING>, op STRING, ts_ms BIGINT') AS change FROM records)"""


def envelope(op: str, ts_ms: int, before: Any = None, after: Any = None) -> dict[str, str]:
    document = {"before": before, "after": after, "op": op, "ts_ms": ts_ms}
    return {"value": json.dumps(document)}


def test_a_pipeline_merges_a_change_topic_of_debezium(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        envelope("r", 1, after={"id": 1, "city": "Kyoto"}),
        envelope("c", 2, after={"id": 2, "city": "Oslo"}),
        envelope("d", 9, before={"id": 2, "city": "Oslo"}),
        {"value": "null"},
        envelope("u", 5, before={"id": 1, "city": "Kyoto"}, after={"id": 1, "city": "Lima"}),
    ]
    rows += [envelope("u", 4, after={"id": 1, "city": "Rome"}), envelope("c", 8, after={"id": 2})]
    run(spark, tmp_path, rows, "changes: debezium", DEBEZIUM)
    found = read_delta(spark, str(tmp_path / "table")).collect()
    assert [row.asDict() for row in found] == [{"id": 1, "city": "Lima", "_sequence": 5}]


def test_a_change_that_cannot_be_merged_ends_the_run_and_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PipelineFailed, match="sink 'merged': a change has the operation t"):
        run(spark, tmp_path, [envelope("t", 1)], "changes: debezium", DEBEZIUM)
    with pytest.raises(PipelineFailed, match="has no value for the key 'id'"):
        run(spark, tmp_path, [envelope("d", 1)], "changes: debezium", DEBEZIUM)


@pytest.mark.thorough
def test_rows_with_a_condition_delete_and_new_columns_are_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    fields = (
        "sequence_by: seq\n    apply_as_deletes: what = 'gone'\n    except_columns: [what, seq]"
    )
    plain = "SELECT id, seq, what FROM records"
    run(
        spark,
        tmp_path,
        [{"id": n, "seq": 1, "what": "new"} for n in range(3)],
        fields,
        plain,
    )
    more = [{"id": 1, "seq": 2, "what": "gone"}, {"id": 2, "seq": 2, "what": "new"}]
    run(spark, tmp_path, more, fields, "SELECT id, seq, what, upper(what) AS big FROM records")
    found = read_delta(spark, str(tmp_path / "table")).orderBy("id").collect()
    assert [(row["id"], row["big"]) for row in found] == [(0, None), (2, "NEW")]
    with pytest.raises(
        DeltaFailed, match=r"the column 'big' of .* is string, and the rows have int"
    ):
        run(spark, tmp_path, more, fields, "SELECT id, seq, what, 1 AS big FROM records")


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("sequence_by: sqe", "sinks.merged.sequence_by: there is no column `sqe`"),
        ("sequence_by: map(1, id)", "sinks.merged.sequence_by"),
        ("sequence_by: id\n    apply_as_deletes: id + 1", "is bigint, not true or false"),
        ("sequence_by: id\n    except_columns: [nmae]", "there is no column 'nmae'"),
        ("sequence_by: id\n    partition_by: [day]", "there is no column 'day'"),
        ("changes: debezium", "sinks.merged.merge: there is no column 'before'"),
    ],
)
def test_a_mistake_in_the_columns_is_found_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, sink: str, words: str
) -> None:
    with pytest.raises(SpecInvalid) as caught:
        run(spark, tmp_path, [{"id": 1}], sink, "SELECT id FROM records")
    assert words in str(caught.value)
    assert str(caught.value).startswith("f.yml:1")
    assert not (tmp_path / "table").exists()


def test_a_table_of_features_that_are_not_known_is_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    merges = Merges(session, tmp_path / "t", 1)
    newer = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"]}}
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / "t/_delta_log/00000000000000000000.json").write_text(json.dumps(newer))
    with pytest.raises(DeltaFailed, match="reader version 3 and writer version 7, with x"):
        merges.merge([(1, "b", 2, False)])
