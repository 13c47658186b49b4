"""Tables with several writers: pipelines and the upkeep of delta-rs, of whose commits one is second."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from zhumq.pipelines import delta_log
from zhumq.pipelines.delta_layout import (
    DELETES_OLDER_THAN_MS_DEFAULT,
    OLDER_THAN_MS_DEFAULT,
    DeltaFailed,
)
from zhumq.pipelines.delta_log import DataFile, now_ms
from zhumq.pipelines.delta_table import DeltaTable, read_delta
from zhumq.pipelines.delta_upkeep import (
    Upkeep,
    keep_up,
)
from zhumq.pipelines.merge_table import MergeTable
from zhumq.pipelines.views import new_session

CHANGES = "id INT, name STRING, _sequence BIGINT, _deleted BOOLEAN"
BESIDE_BATCHES = 10
UPKEEP_SECONDS_MAX = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    own = new_session(spark)
    own.conf.set("spark.sql.shuffle.partitions", "1")
    own.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    return own


class Overtaken(DeltaTable):
    """A table whose next batch has written its files when another writer commits."""

    overtaking: Callable[[], Any] | None = None

    def write_files(self, rows: DataFrame, query: str, *, room: int) -> list[DataFile]:
        files = super().write_files(rows, query, room=room)
        if self.overtaking is not None:
            overtake, self.overtaking = self.overtaking, None
            overtake()
        return files


def keep_up_now(path: Path, *, ages_ms: int | None = None) -> list[Upkeep]:
    return keep_up(
        str(path),
        older_than_ms=OLDER_THAN_MS_DEFAULT if ages_ms is None else ages_ms,
        deletes_older_than_ms=DELETES_OLDER_THAN_MS_DEFAULT if ages_ms is None else ages_ms,
    )


def write(path: Path, columns: dict[str, list[Any]]) -> None:
    kinds = {"id": pa.int32(), "name": pa.string(), "_sequence": pa.int64()}
    arrays = {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
    deltalake.write_deltalake(str(path), pa.table(arrays), mode="append")


def of_another_engine(path: Path) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted((tuple(each.values()) for each in rows), key=repr)


def operations(path: Path) -> list[str]:
    """Oldest first."""
    return [each["operation"] for each in reversed(deltalake.DeltaTable(str(path)).history())]


def data_files(path: Path) -> set[str]:
    return {each.name for each in path.glob("*.parquet")}


def test_a_batch_that_another_batch_overtakes_is_committed_again_and_once(
    session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    one, other = Overtaken(session, str(path)), DeltaTable(session, str(path))
    one.overtaking = lambda: other.append(session.range(10, 12), query="b", batch=0)
    assert one.append(session.range(3), query="a", batch=0) == 3
    assert one.log.snapshot().batches == {"a": 0, "b": 0}
    # A run that is thought to be dead writes the same batch.
    one.overtaking = lambda: other.append(session.range(3, 5), query="a", batch=1)
    assert one.append(session.range(3, 5), query="a", batch=1) == 0
    assert of_another_engine(path) == sorted([(n,) for n in (0, 1, 2, 3, 4, 10, 11)], key=repr)
    # Nothing is left of the batch that came too late.
    assert data_files(path) == {each.path for each in one.log.snapshot().files.values()}


@pytest.mark.thorough
def test_a_merge_that_an_upkeep_overtakes_is_made_again_and_the_upkeep_leaves_what_is_ours(
    session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = MergeTable(session, str(path), keys=("id",), scd_type=1)
    table.table = Overtaken(session, str(path))

    def merge(batch: int, *changes: tuple[int, str | None, int, bool]) -> None:
        table.merge(session.createDataFrame(list(changes), CHANGES), query="q", batch=batch)

    # As two batches would be, and quicker.
    write(path, {"id": [1, 2], "name": ["a", "b"], "_sequence": [1, 1]})
    write(path, {"id": [3], "name": ["c"], "_sequence": [1]})
    write(path / "_zhumq/deletes", {"id": [9], "_sequence": [5], "_written_ms": [now_ms()]})
    ours = path / "_zhumq/staging/other/part.parquet"
    ours.parent.mkdir(parents=True)
    ours.write_bytes(b"a batch that is being written")
    table.table.overtaking = lambda: keep_up_now(path)
    merge(0, (1, "A", 2, False), (3, None, 2, True))
    assert operations(path)[-2:] == ["OPTIMIZE", "MERGE"]
    rows = [(1, "A", 2), (2, "b", 1)]
    assert of_another_engine(path) == rows

    (path / "unnamed.parquet").write_bytes(b"a file that no commit names")
    done = keep_up_now(path, ages_ms=0)
    assert [(each.files, each.merged, each.forgotten) for each in done] == [(1, 0, 0), (0, 0, 2)]
    assert done[0].removed == 4
    assert len(data_files(path)) == 1
    assert not data_files(path / "_zhumq/deletes")
    assert ours.exists()
    assert of_another_engine(path) == rows
    # zhumq reads what delta-rs has written; its checkpoint knows the batches.
    merge(0, (2, "again", 9, False))
    assert sorted(map(tuple, read_delta(session, str(path)).collect())) == rows
    # A delete that is forgotten stops no older change.
    merge(1, (9, "back", 4, False))
    assert of_another_engine(path) == [*rows, (9, "back", 4)]


@pytest.mark.long
def test_a_merge_finds_a_delete_that_another_merge_commits_meanwhile(
    session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"

    def merge(table: MergeTable, query: str, batch: int, change: tuple[Any, ...]) -> None:
        table.merge(session.createDataFrame([change], CHANGES), query=query, batch=batch)

    one, other = (MergeTable(session, str(path), keys=("id",), scd_type=1) for _ in range(2))
    merge(one, "one", 0, (1, "a", 1, False))
    one.table = Overtaken(session, str(path))
    # Its key is not in the table, whose files stay as they are.
    one.table.overtaking = lambda: merge(other, "other", 0, (2, None, 5, True))
    merge(one, "one", 1, (2, "too late", 4, False))
    assert of_another_engine(path) == [(1, "a", 1)]
    assert one.table.log.snapshot().batches == {"one": 1, "other": 0}


def test_a_batch_of_too_many_files_is_refused_and_nothing_is_committed(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    table = Overtaken(session, str(path))
    write(path, {"id": [0]})
    rows = session.range(1, 2).selectExpr("CAST(id AS INT) AS id")
    monkeypatch.setattr(delta_log, "ACTIVE_FILES_MAX", 2)
    with pytest.raises(DeltaFailed, match=r"may have 2 files, and would have 1 more: .* upkeep"):
        table.append(rows.union(rows), query="q", batch=0)
    # Another writer may need the room that was there.
    table.overtaking = lambda: write(path, {"id": [9]})
    with pytest.raises(DeltaFailed, match="would have 1 more"):
        table.append(rows, query="q", batch=0)
    assert table.log.snapshot().batches == {}
    assert len(data_files(path)) == 2
    keep_up_now(path)
    table.append(rows, query="q", batch=0)
    assert of_another_engine(path) == [(0,), (1,), (9,)]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_upkeeps_in_their_own_processes_beside_a_merging_run_lose_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = MergeTable(session, str(path), keys=("id",), scd_type=1)
    rows = session.range(40).selectExpr("CAST(id AS INT) AS id", "'n' AS name")

    def merge(batch: int) -> None:
        changes = rows.where(f"id % 4 = {batch % 4}").selectExpr(
            "*", f"{batch} AS _sequence", f"id % 7 = {batch % 7} AS _deleted"
        )
        table.merge(changes, query="q", batch=batch)

    merge(0)
    over = Event()
    results: list[subprocess.CompletedProcess[str]] = []

    def keep_it_up() -> None:
        words = [sys.executable, "-m", "zhumq", "pipeline", "upkeep", str(path), "--json"]
        while not over.is_set():
            results.append(
                subprocess.run(
                    words, capture_output=True, text=True, check=False, timeout=UPKEEP_SECONDS_MAX
                )
            )

    beside = Thread(target=keep_it_up)
    beside.start()
    try:
        for batch in range(1, BESIDE_BATCHES):
            merge(batch)
    finally:
        over.set()
        beside.join()
    assert {each.returncode for each in results} == {0}, [each.stderr for each in results]
    merged = sum(each["merged"] for result in results for each in json.loads(result.stdout))
    assert merged > 0
    newest: dict[int, tuple[int, str, int]] = {}
    for batch in range(BESIDE_BATCHES):
        for key in range(batch % 4, 40, 4):
            newest.pop(key, None)
            if key % 7 != batch % 7:
                newest[key] = (key, "n", batch)
    assert of_another_engine(path) == sorted(newest.values(), key=repr)
    print(f"{len(results)} upkeeps, {merged} files merged; {operations(path)}")
