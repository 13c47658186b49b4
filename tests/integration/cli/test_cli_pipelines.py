"""`zhumq pipeline` in its own process: signals and exit codes."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from cli_support import Cli, command, environment
from copy_pipeline import QUICK_JAVA, WAIT_SECONDS_MAX

from zhumq.cli.main import run


def test_the_pipelines_that_come_with_zhumq_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "list", "--json", "--state-dir", str(tmp_path)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == ["archive", "audit", "inspect", "replay"]
    assert all(each["about"] for each in listed)


def test_a_pipeline_can_be_copied_but_never_over_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine.yml"
    assert run(["pipeline", "copy", "archive", str(target)]) == 0
    assert "sinks:" in target.read_text()
    assert run(["pipeline", "copy", "archive", str(target)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert run(["pipeline", "copy", "archiev"]) == 1
    assert "zhumq comes with archive, audit" in capsys.readouterr().err


def test_the_status_of_a_pipeline_that_never_ran_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "status", "orders", "--state-dir", str(tmp_path)]) == 1
    assert "no pipeline 'orders' has run" in capsys.readouterr().err
    assert run(["pipeline", "status", "--json", "--state-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_wrong_file_is_one_line_with_its_place_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yml"
    file.write_text("name: wrong\nsources:\n  a: {topic: a}\nsniks: {}\n")
    assert run(["pipeline", "run", str(file)]) == 2
    error = capsys.readouterr().err
    expected = f"zhumq: {file}:4: sniks: there is no such field (did you mean 'sinks'?);"
    assert error.startswith(expected)
    assert error.count("\n") == 1
    assert run(["pipeline", "run", "archive"]) == 2
    assert "parameters.topic: has no value: give it with --set topic=..." in capsys.readouterr().err
    assert run(["pipeline", "run", str(tmp_path / "none.yml")]) == 1
    assert "there is no file" in capsys.readouterr().err


def status_of(state_dir: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(
            (state_dir / "archive-orders" / "status.json").read_text()
        )
    except FileNotFoundError:
        return {"state": "none", "sinks": {}}
    return found


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_master_that_spark_does_not_know_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "any.yml"
    file.write_text("name: any\nsources:\n  a: {topic: a}\nsinks:\n  seen: {from: a, console: 1}\n")
    arguments = (
        "pipeline",
        "run",
        str(file),
        "--master",
        "locale[2]",
        "--state-dir",
        str(tmp_path),
    )
    ended = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
        env={**environment("127.0.0.1:1"), "JDK_JAVA_OPTIONS": QUICK_JAVA},
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        (
            "zhumq: Spark does not start with the master 'locale[2]': Could not parse Master URL:"
            f" 'locale[2]' (see {tmp_path / 'any' / 'spark.log'})"
        )
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_sigterm_finishes_the_batch_and_ends_with_exit_code_0(cli: Cli, tmp_path: Path) -> None:
    cli.must("topic", "create", "orders", "--partitions", "2")
    cli.must("produce", "orders", lines=[f"order {number}" for number in range(500)])
    state, table = tmp_path / "state", tmp_path / "table"
    arguments = (
        "pipeline", "run", "archive", "--state-dir", str(state), "--set", "topic=orders",
        "--set", f"table={table}", "--set", "trigger=1s",
    )  # fmt: skip
    with subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(cli.bootstrap), "JDK_JAVA_OPTIONS": QUICK_JAVA},
    ) as process:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while status_of(state)["sinks"].get("archive", {}).get("rows_out") != 500:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, status_of(state)
            time.sleep(0.1)
        listed = cli.must("pipeline", "status", "--json", "--state-dir", str(state)).document
        assert [(each["name"], each["state"]) for each in listed] == [("archive-orders", "running")]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "archive-orders: stopped"
    assert status_of(state)["state"] == "stopped"
    rows = pyarrow.dataset.dataset(str(table), format="parquet").to_table(columns=["offset"])
    assert rows.num_rows == 500
