"""The upkeep of Delta tables, without Spark: what it does to tables of any writer, and what it refuses."""

import json
import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import deltalake
import pyarrow as pa

from zhumq.cli.main import run
from zhumq.pipelines import delta_upkeep
from zhumq.pipelines.delta_layout import DeltaFailed, Expiry

WEEK_MS = 7 * 24 * delta_upkeep.HOUR_MS
DELETES = "_zhumq/deletes"


def write(path: Path, *values: int, column: str = "x", **facts: Any) -> None:
    for value in values:
        rows = pa.table({column: pa.array([value], pa.int64())})
        deltalake.write_deltalake(str(path), rows, mode="append", **facts)


def values(path: Path, column: str = "x") -> list[int]:
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    return sorted(rows[column].to_pylist())


def keep_up(path: str | Path, **ages: int) -> list[delta_upkeep.Upkeep]:
    ages = {"older_than_ms": WEEK_MS, "deletes_older_than_ms": WEEK_MS, **ages}
    return delta_upkeep.keep_up(str(path), **ages)


def test_small_files_become_one_and_old_ones_go_with_their_time(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    (done,) = keep_up(f"file:{tmp_path}")
    assert (done.files, done.merged, done.removed) == (1, 3, 0)
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    (done,) = keep_up(tmp_path, older_than_ms=0)
    assert (done.files, done.merged, done.removed) == (1, 0, 3)
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert values(tmp_path) == [1, 2, 3]


def test_the_log_before_a_checkpoint_goes_after_a_month(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    month_ago = time.time() - 31 * 24 * 3600
    for commit in tmp_path.glob("_delta_log/*.json"):
        os.utime(commit, (month_ago, month_ago))
    keep_up(tmp_path)
    names = sorted(each.name for each in tmp_path.glob("_delta_log/0*"))
    assert names[0].startswith("00000000000000000003.")
    assert values(tmp_path) == [1, 2, 3]


def test_an_upkeep_whose_files_another_writer_replaces_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 2, 3)
    table_class, left = deltalake.DeltaTable, [1]

    class Overtaken(table_class):  # type: ignore[misc, valid-type]
        @property
        def optimize(self) -> Any:
            if left:
                left.pop()
                table_class(str(tmp_path)).delete("x = 2")
            return super().optimize

    monkeypatch.setattr(deltalake, "DeltaTable", Overtaken)
    (done,) = keep_up(tmp_path)
    assert (left, done.files, done.merged) == ([], 1, 2)
    assert values(tmp_path) == [1, 3]


def test_an_upkeep_that_is_overtaken_again_and_again_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 2)
    table_class = deltalake.DeltaTable

    class Overtaken(table_class):  # type: ignore[misc, valid-type]
        @property
        def optimize(self) -> Any:
            write(tmp_path, 9)
            table_class(str(tmp_path)).delete("x = 9 OR x = 1")
            write(tmp_path, 1)
            return super().optimize

    monkeypatch.setattr(deltalake, "DeltaTable", Overtaken)
    with pytest.raises(DeltaFailed, match="other writers committed 10 times before the upkeep"):
        keep_up(tmp_path)
    assert values(tmp_path) == [1, 2]


def test_the_command_forgets_deletes_of_long_ago_and_says_before_what_it_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 1, 2)
    write(tmp_path / DELETES, 0, 1, 4_000_000_000_000, column="_written_ms")
    words = ["pipeline", "upkeep", str(tmp_path), "--json"]
    assert run([*words, "--dry-run"]) == 0
    facts = ("files", "merged", "removed", "forgotten")
    table, deletes = json.loads(capsys.readouterr().out)
    assert deletes["table"] == f"{table['table']}/{DELETES}"
    assert [table[name] for name in facts] == [2, 0, 0, 0]
    assert [deletes[name] for name in facts] == [3, 0, 0, 2]
    assert len(values(tmp_path / DELETES, "_written_ms")) == 3
    assert run([*words, "--deletes-older-than", "1h"]) == 0
    table, deletes = json.loads(capsys.readouterr().out)
    assert [table[name] for name in facts] == [1, 2, 0, 0]
    assert [deletes[name] for name in facts] == [1, 0, 0, 2]
    assert values(tmp_path / DELETES, "_written_ms") == [4_000_000_000_000]
    assert values(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing"], "there is no Delta table at nothing"),
        (["t", "--older-than", "week"], "--older-than is a time such as 7d or 12h, not 'week'"),
        (["t", "--older-than", "59m"], "--older-than is 59m, and must be an hour to a year"),
        (["t", "--deletes-older-than", "400d"], "--deletes-older-than is 400d, and must be"),
        (["s3://bucket/t"], "s3://bucket/t is not on this machine's file system"),
        (["newer"], "newer is a Delta table of reader version 3 and writer version 7"),
    ],
)
def test_what_cannot_be_kept_up_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t", 1)
    write(tmp_path / "newer", 1)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    commit = tmp_path / "newer/_delta_log/00000000000000000001.json"
    commit.write_text(json.dumps({"protocol": {**protocol, **features}}) + "\n")
    assert run(["pipeline", "upkeep", *words]) == 1
    printed = capsys.readouterr().err
    assert error in printed
    assert printed.count("\n") == 1


def write_days(path: Path, *days: object, kind: pa.DataType) -> None:
    for number, day in enumerate(days):
        rows = pa.table({"day": pa.array([day], kind), "x": pa.array([number], pa.int64())})
        deltalake.write_deltalake(str(path), rows, mode="append", partition_by=["day"])


@pytest.mark.parametrize("kind", [pa.date32(), pa.string()], ids=str)
def test_partitions_of_days_long_ago_leave_the_table_and_their_files_go_with_their_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: pa.DataType
) -> None:
    today = datetime.now(tz=UTC).date()
    days = [today, today - timedelta(days=30), today - timedelta(days=32), date(1999, 12, 31), None]
    write_days(tmp_path, *(day if day is None or kind == pa.date32() else str(day) for day in days), kind=kind)  # fmt: skip
    words = ["pipeline", "upkeep", str(tmp_path), "--json", "--expire", "day=30d"]
    assert run([*words, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["expired"] == 2
    assert values(tmp_path) == [0, 1, 2, 3, 4]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)[0]["expired"] == 2
    # Rows without a day stay.
    assert values(tmp_path) == [0, 1, 4]
    # Readers of the version before still find their files.
    assert deltalake.DeltaTable(str(tmp_path), version=4).to_pyarrow_table().num_rows == 5
    expiry = Expiry(column="day", after_ms=30 * 24 * delta_upkeep.HOUR_MS)
    (done,) = delta_upkeep.keep_up(
        str(tmp_path), older_than_ms=0, deletes_older_than_ms=0, expiry=expiry
    )
    assert (done.expired, done.files) == (0, 3)
    assert not list(tmp_path.glob("day=1999*/*.parquet"))


def test_what_cannot_expire_is_refused_and_nothing_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_days(tmp_path, "1999-12-31", "yesterday", kind=pa.string())
    for option, words in (
        ("x=30d", "is not partitioned by 'x', so none of its rows expire by it; it is partitioned by day"),
        ("day=30d", "has a partition day=yesterday: only days, as 2026-01-31, expire"),
        ("day=1h", "--expire is COLUMN=TIME"),
        ("30d", "--expire is COLUMN=TIME"),
    ):  # fmt: skip
        assert run(["pipeline", "upkeep", str(tmp_path), "--expire", option]) == 1
        assert words in capsys.readouterr().err
    assert values(tmp_path) == [0, 1]
