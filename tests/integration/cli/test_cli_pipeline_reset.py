"""`zhumq pipeline reset` in its own process: what it asks, and what it refuses."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cli_support import Cli, command, environment
from copy_pipeline import COPY, QUICK_JAVA, WAIT_SECONDS_MAX

from zhumq.cli.main import run


def test_what_cannot_be_reset_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    file = tmp_path / "copy.yml"

    def fails(*words: str) -> str:
        assert run(["pipeline", "reset", *words, *state]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert fails("orders") == (
        "zhumq: there is no file 'orders', and no pipeline of that name has run with"
        f" {tmp_path / 'state'}: see --state-dir\n"
    )
    file.write_text(COPY.format(trigger="batch"))
    assert "has trigger: batch, so each run reads everything" in fails(str(file))
    file.write_text(COPY.format(trigger="1s"))
    assert "an offset is of one partition" in fails(str(file), "--to", "7")
    assert "--to takes earliest, latest" in fails(str(file), "--to", "yesterday")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_reset_asks_and_a_no_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    cli.must("topic", "create", "orders")
    cli.must("produce", "orders", lines=["a chair", "a table"])
    file, state = tmp_path / "copy.yml", tmp_path / "state"
    file.write_text(COPY.format(trigger="available-now"))

    def reset(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command("pipeline", "reset", str(file), "--to", "latest", "--state-dir", str(state), *words),
            input="n\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
            env={**environment(cli.bootstrap), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        )  # fmt: skip

    asked = reset()
    assert asked.returncode == 130
    assert "Reset copied of copy? [y/N]" in asked.stderr
    assert asked.stdout.splitlines()[0].split() == [
        "SINK", "TOPIC", "PARTITION", "BEFORE", "AFTER", "AGAIN", "LEFT", "OUT"
    ]  # fmt: skip
    assert asked.stdout.splitlines()[1].split() == ["copied", "orders", "0", "-", "2", "0", "0"]
    assert asked.stdout.splitlines()[2] == "copied: no message is read again"
    starts = state / "copy" / "checkpoints" / "starts.json"
    assert not starts.exists()
    done = reset("--yes", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (sink,) = json.loads(done.stdout)["sinks"]
    assert sink["partitions"] == [
        {"topic": "orders", "partition": 0, "before": None, "after": 2, "again": 0, "left_out": 0}
    ]
    assert json.loads(starts.read_text()) == {"copied": {"records": {"orders": {"0": 2}}}}
