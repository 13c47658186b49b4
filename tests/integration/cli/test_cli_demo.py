"""`zhumq demo` (`make run`): every stage works, once or until Ctrl-C."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from cli_support import SECONDS_MAX, Cli, begin, command, environment

SPARK_SECONDS_MAX = 280.0  # the machine may be busy


def stages(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("ok ")]


def test_the_demo_works_more_than_once_on_one_folder(tmp_path: Path) -> None:
    arguments = ("demo", "--once", "--no-spark", "--listen", "127.0.0.1:0")
    for words in ("20,000 log lines to shop-logs in", "shop-logs has its 20,000 log lines already"):
        done = Cli("").must(*arguments, "--data-dir", str(tmp_path / "data"))
        assert stages(done.lines) == ["broker", "sent", "read"]
        assert any(words in line for line in done.lines)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_runs_its_pipelines_and_checks_what_they_found(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    data = tmp_path / "data"
    done = subprocess.run(
        command("demo", "--once", "--listen", "127.0.0.1:0", "--data-dir", str(data)),
        capture_output=True,
        env=environment(""),
        timeout=SPARK_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    lines = done.stdout.decode().splitlines()
    assert stages(lines) == ["broker", "sent", "read", "archive", "inspect", "dlq", "alerts"]
    assert any(line.startswith("burst: payments had 270 errors in 3 minutes") for line in lines)
    made = data.with_name("data-pipelines")
    assert (made / "inspected.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((made / "audit.json").read_text()) == []


def test_the_demo_serves_until_ctrl_c(tmp_path: Path) -> None:
    arguments = (
        "demo",
        "--no-spark",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "data"),
    )
    with begin("", *arguments) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"Serving until Ctrl-C.\n":
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (0, b"")


def test_a_demo_whose_broker_cannot_start_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    arguments = ("demo", "--once", "--data-dir", str(tmp_path / "file" / "data"))
    done = Cli("").run(*arguments)
    assert done.code == 1
    assert "the broker did not start" in done.err


def test_the_program_runs_from_its_module() -> None:
    done = Cli("").must("--help")
    assert b"Usage: zhumq" in done.out
