"""The log of a real broker: as JSON, in a rotated file, on a full disk, and options that are refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from small_disk import small_file_system

from zhumq.testing.process import BrokerProcess, broker_process

SECONDS_MAX = 90
LEAST_BYTES = 64 << 10
DISK_BYTES = 256 << 10
# A broker logs a warning at its start if other machines reach it.
WITH_A_WARNING = ["--http", "0.0.0.0:0", "--insecure"]


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name)])[name].result(SECONDS_MAX)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_of_the_log_is_json_with_the_id_of_the_broker(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", broker_id=7, options=["--log-format", "json"])
    process.start()
    try:
        assert process.stop() == 0
    finally:
        process.kill()
    lines = lines_of(process.log)
    assert {line["broker"] for line in lines} == {7}
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    assert lines[-1]["message"] == "stopped"


def test_a_full_log_file_is_rotated_and_nothing_goes_to_stderr(tmp_path: Path) -> None:
    file = tmp_path / "zhumq.log"
    file.write_bytes(b"x" * LEAST_BYTES)
    options = ["--log-file", str(file), "--log-max-bytes", str(LEAST_BYTES), "--log-files", "2"]
    with broker_process(tmp_path / "data", options=options) as process:
        assert process.stop() == 0
        assert process.log == ""
    assert file.with_name("zhumq.log.1").stat().st_size == LEAST_BYTES
    assert "stopped" in file.read_text()
    assert not file.with_name("zhumq.log.2").exists()


def test_the_rest_api_beside_a_broker_has_a_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    options = ["--log-file", str(tmp_path / "zhumq.log"), "--log-format", "json"]
    options += ["--web", "127.0.0.1:0"]
    with broker_process(tmp_path / "data", options=options) as process:
        assert " web=http://" in process.ready_line
        assert (tmp_path / "zhumq-web.log").exists()
        assert process.stop() == 0
    assert lines_of((tmp_path / "zhumq.log").read_text())[-1]["message"] == "stopped"


def test_a_full_disk_of_the_log_does_not_stop_the_broker(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "logs", DISK_BYTES) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * DISK_BYTES)
        file = disk / "zhumq.log"
        options = ["--log-file", str(file), *WITH_A_WARNING]
        with broker_process(tmp_path / "data", options=options) as process:
            assert "cannot write the log" in process.log
            create_topic(process.bootstrap, "while-it-is-full")
            ballast.unlink()
            assert process.stop() == 0
        assert "the log is written again" in file.read_text()
        assert "stopped" in file.read_text()


@pytest.mark.parametrize("options", [[], ["--log-file", "/dev/full", "--log-format", "json"]])
def test_neither_a_full_log_file_nor_a_full_stderr_stops_the_broker(
    tmp_path: Path, options: list[str]
) -> None:
    command = [sys.executable, "-m", "zhumq", "start", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", "127.0.0.1:0", *WITH_A_WARNING, *options]
    with (
        open("/dev/full", "w") as full,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            create_topic(ready.partition("kafka=")[2].partition(" ")[0], "while-it-is-full")
            assert process.poll() is None
        finally:
            process.terminate()
    assert process.returncode >= 0  # it ended by itself


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["--log-max-bytes", "100000"], "--log-max-bytes is about the file of the log: give"),
        (["--log-files", "3"], "--log-files is about the file of the log: give --log-file"),
        (["--log-file", "x", "--log-max-bytes", "10"], "10 is not in the range x>=65536"),
        (["--log-file", "x", "--log-files", "0"], "0 is not in the range 1<=x<=1000"),
        (["--log-file", "/nowhere/x"], "--log-file /nowhere/x: No such file or directory: give"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(
    tmp_path: Path, options: list[str], reason: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zhumq", "start", "--data-dir", str(tmp_path / "data"), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert reason in line
    assert not (tmp_path / "data").exists()
