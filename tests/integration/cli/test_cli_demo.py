"""`zhumq demo`, which is `make run`: every stage works, once or until Ctrl-C."""

import signal
from pathlib import Path

from cli_support import SECONDS_MAX, Cli, begin


def test_the_demo_works_more_than_once_on_one_folder(tmp_path: Path) -> None:
    arguments = ("demo", "--once", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    for _ in range(2):
        done = Cli("").must(*arguments)
        stages = [line.split()[1] for line in done.lines if line.startswith("ok ")]
        assert stages == ["broker", "topic", "sent", "read", "inspected"]


def test_the_demo_serves_until_ctrl_c(tmp_path: Path) -> None:
    arguments = ("demo", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
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
