"""`zhumq pipeline backfill` in its own process: what it refuses, what it asks, and what it says of a backfill."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cli_support import Cli, command, environment
from copy_pipeline import COPY, QUICK_JAVA, WAIT_SECONDS_MAX

from zhumq.cli.main import run

NOTE = {
    "name": "20260131T120000000000Z", "pipeline": "copy", "begin": "earliest", "end": "latest", "asked": [],
    "sinks": ["copied"], "ranges": {}, "read_by": {"copied": []}, "number": 0, "allow_missing": False, "replace": False, "shapes": {},
    "begun_at": "2026-01-31T12:00:00+00:00", "written": {},
}  # fmt: skip


def test_what_cannot_be_backfilled_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, state = tmp_path / "copy.yml", tmp_path / "state"

    def fails(*words: str) -> str:
        assert run(["pipeline", "backfill", str(file), *words, "--state-dir", str(state)]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    file.write_text(COPY.format(trigger="batch"))
    assert "has trigger: batch, so each run reads everything" in fails("--from", "earliest")
    file.write_text(COPY.format(trigger="1s"))
    unfinished = f"zhumq: no backfill of {file} is unfinished: give --from and --to for a new one\n"
    assert fails() == unfinished
    assert fails("--abandon") == unfinished
    assert "a backfill needs both --from and --to" in fails("--from", "earliest")
    assert "--to takes a time such as" in fails("--from", "earliest", "--to", "tomorrow")
    assert "give --yes or --dry-run" in fails("--from", "earliest", "--to", "latest", "--json")
    assert "--abandon is about the backfill" in fails("--abandon", "--from", "earliest")
    folder = state / "copy" / "backfills"
    folder.mkdir(parents=True)
    (folder / "20260131T120000000000Z.json").write_text(json.dumps(NOTE))
    words = (
        "the backfill from earliest to latest, begun at 2026-01-31T12:00:00+00:00 is not finished"
    )
    assert words in fails("--from", "earliest", "--to", "@7")
    (folder / "20260131T120000000000Z.json").write_text("{")
    assert "20260131T120000000000Z.json is damaged" in fails()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_backfill_asks_and_a_no_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    cli.must("topic", "create", "orders")
    cli.must("produce", "orders", lines=["a chair", "a table", "a lamp"])
    file, state = tmp_path / "copy.yml", tmp_path / "state"
    file.write_text(COPY.format(trigger="1s"))

    def backfill(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command("pipeline", "backfill", str(file), "--state-dir", str(state), *words),
            input="n\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
            env={**environment(cli.bootstrap), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        )  # fmt: skip

    given = ("--from", "orders:0:1", "--to", "latest")
    asked = backfill(*given)
    assert asked.returncode == 130
    assert "Write these 2 messages to copied? [y/N]" in asked.stderr
    headings, row, copied, total, *_ = asked.stdout.splitlines()
    assert headings.split() == ["SOURCE", "TOPIC", "PARTITION", "FIRST", "UNTIL", "MESSAGES"]
    assert row.split() == ["records", "orders", "0", "1", "3", "2"]
    assert copied.startswith("copied: sends each of its rows to copied, also those")
    assert total == "up to 2 messages"
    assert not (state / "copy" / "backfills").exists()
    done = backfill(*given, "--yes", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["written"] == {"copied": 2}
    assert document["ranges"] == [
        {"source": "records", "topic": "orders", "partition": 0, "first": 1, "until": 3}
    ]
    consumed = cli.must("consume", "copied", "--from", "earliest", "--until-end")
    assert consumed.lines == ["a table", "a lamp"]
    refused = backfill(*given, "--yes")
    assert refused.returncode == 1
    assert "has written the rows of these offsets" in refused.stderr
