"""`zhumq start` and `zhumq demo` as processes: the ready line, clean stops, clear refusals."""

import re
import signal
import socket
from pathlib import Path

import pytest
from cli_support import SECONDS_MAX, Cli, begin

ANY = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
READY = re.compile(
    r"^zhumq ready kafka=127\.0\.0\.1:\d+ push=\S+ http=127\.0\.0\.1:\d+ broker=\d+ data=(\S+)$"
)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_line_when_ready_and_stops_with_0(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with begin("", "start", *ANY, "--data-dir", str(tmp_path / "data")) as process:
        assert process.stdout is not None
        ready = READY.match(process.stdout.readline().decode())
        process.send_signal(stop)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    assert ready is not None
    assert ready[1] == str(tmp_path / "data")
    assert (process.returncode, out) == (0, b"")


def _refusal(*arguments: str) -> str:
    return Cli("").fails("start", *arguments)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--listen", "--http"):
            said = _refusal(*ANY, "--data-dir", str(tmp_path / "data"), option, address)
            assert address in said
            assert "in use" in said


def test_a_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    with begin("", "start", *ANY, *folder) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert str(tmp_path / "data") in _refusal(*ANY, *folder)
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert str(tmp_path / "file") in _refusal(*ANY, "--data-dir", str(tmp_path / "file" / "data"))


def test_another_broker_id_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    with begin("", "start", *ANY, *folder, "--broker-id", "1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert str(tmp_path / "data") in _refusal(*ANY, *folder, "--broker-id", "2")


def test_settings_come_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    settings = tmp_path / "zhumq.toml"
    settings.write_text("num.partitions = 3\n[auto.create.topics]\nenable = false\n")
    arguments = ("--config", str(settings), "--set", "num.partitions=5")
    with begin("", "start", *ANY, "--data-dir", str(tmp_path / "data"), *arguments) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().decode()
        cli = Cli(ready.split("kafka=")[1].split()[0])
        cli.must("topic", "create", "t")
        rows = cli.must("topic", "list", "--json").document
        said = cli.fails("produce", "unknown", lines=["x"])
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert rows == [{"topic": "t", "partitions": 5, "replicas": 1}]
    assert "no such topic" in said


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
