"""`zhumq dump-log` over the files of a broker that has been used."""

import json
from pathlib import Path

import pytest
from cli_support import Cli

from zhumq.testing.broker import broker

MESSAGES = 300
FIRST = f"{0:020d}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a partition with three hundred keyed messages, its broker stopped."""
    data_dir = tmp_path_factory.mktemp("data")
    with broker(data_dir=data_dir, settings={"log.index.interval.bytes": "100"}) as running:
        lines = [f"key-{number}:value-{number}" for number in range(MESSAGES)]
        cli = Cli(running.bootstrap)
        for start in range(0, MESSAGES, 100):
            cli.must("produce", "t", "--key-separator", ":", lines=lines[start : start + 100])
    return data_dir / "t-0"


def _rows(*arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Cli("").must("dump-log", "--json", *arguments).lines]


def test_the_batches_of_a_log_are_printed_in_kafkas_format(folder: Path) -> None:
    lines = Cli("").must("dump-log", str(folder / f"{FIRST}.log")).lines
    assert lines[:2] == [f"Dumping {folder / FIRST}.log", "Log starting offset: 0"]
    assert lines[2].startswith("baseOffset: 0 lastOffset: ")
    assert all(line.endswith("isvalid: true") for line in lines[2:])


def test_the_batches_cover_every_offset_once(folder: Path) -> None:
    rows = _rows(str(folder / f"{FIRST}.log"))
    covered = [
        offset for row in rows for offset in range(row["base_offset"], row["last_offset"] + 1)
    ]  # type: ignore[call-overload, operator]
    assert covered == list(range(MESSAGES))
    assert all(row["is_valid"] for row in rows)


def test_records_are_shown_when_asked_for(folder: Path) -> None:
    log = str(folder / f"{FIRST}.log")
    records = [row for row in _rows(log, "--content") if "value" in row]
    assert [(row["key"], row["value"]) for row in records] == [
        (f"key-{number}", f"value-{number}") for number in range(MESSAGES)
    ]
    lines = Cli("").must("dump-log", "--records", log).lines
    assert sum(line.startswith("| offset: ") for line in lines) == MESSAGES


def test_index_entries_point_at_batches(folder: Path) -> None:
    batches = _rows(str(folder / f"{FIRST}.log"))
    positions = {row["position"] for row in batches}
    entries = _rows(str(folder / f"{FIRST}.index"))
    assert entries
    assert {row["position"] for row in entries} <= positions
    assert _rows(str(folder / f"{FIRST}.timeindex"))


def test_a_snapshot_lists_the_producers(folder: Path) -> None:
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    assert all("producer_id" in row for row in _rows(str(snapshots[-1])))


def test_damage_is_shown_and_fails(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / f"{FIRST}.log").read_bytes())
    content[100] ^= 1
    damaged = tmp_path / f"{FIRST}.log"
    damaged.write_bytes(content)
    done = Cli("").run("dump-log", str(damaged))
    assert done.code == 1
    assert "isvalid: false" in done.lines[2]
    assert done.err == f"zhumq: {damaged} is damaged: the lines above say where\n"


def test_a_torn_end_is_shown_and_fails(folder: Path, tmp_path: Path) -> None:
    torn = tmp_path / f"{FIRST}.log"
    torn.write_bytes((folder / f"{FIRST}.log").read_bytes()[:-7])
    done = Cli("").run("dump-log", "--json", str(torn))
    assert done.code == 1
    assert "problem" in json.loads(done.lines[-1])


def test_what_is_no_file_of_a_partition_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in Cli("").fails("dump-log", str(tmp_path / f"{FIRST}.log"))
    (tmp_path / "notes.txt").write_text("x")
    assert "notes.txt is not a .log" in Cli("").run("dump-log", str(tmp_path / "notes.txt")).err
