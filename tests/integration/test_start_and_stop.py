"""Start and stop for an operator: the ready line, exit codes, and one clear line when a start fails."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from zhumq.host.ports import free_ports
from zhumq.testing.process import BrokerProcess, broker_process

SECONDS_MAX = 30


def start(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zhumq", "start", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=cwd,
        check=False,
    )


ANY_PORTS = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")


def test_a_broker_prints_its_addresses_and_stops_at_a_signal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = BrokerProcess(data)
    process.start()
    assert re.fullmatch(
        r"zhumq ready kafka=127\.0\.0\.1:\d+ push=127\.0\.0\.1:\d+ http=127\.0\.0\.1:\d+"
        rf" broker=0 data={re.escape(str(data))}\n",
        process.ready_line,
    )
    with urllib.request.urlopen(f"http://{process.http}/healthz", timeout=SECONDS_MAX) as answer:
        assert answer.read() == b"ok\n"
    with urllib.request.urlopen(f"http://{process.http}/metrics", timeout=SECONDS_MAX) as answer:
        assert b"zhumq_partitions 0" in answer.read()
    assert process.stop() == 0


def test_ctrl_c_stops_it_as_well(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    os.kill(process.pid, signal.SIGINT)
    assert process.stop() == 0


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("zhumq: ")
    for word in words:
        assert word in line


@pytest.mark.thorough
def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = start("--listen", address, "--http", "127.0.0.1:0", cwd=tmp_path)
        assert_one_line(done, address, "address already in use", "--listen")
        done = start("--listen", "127.0.0.1:0", "--http", address, cwd=tmp_path)
        assert_one_line(done, address, "address already in use", "--http")
        done = start(*ANY_PORTS, "--push", address, cwd=tmp_path)
        assert_one_line(done, address, "address already in use", "--push")


def test_a_data_folder_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data"):
        done = start(*ANY_PORTS, "--data-dir", "data", cwd=tmp_path)
        assert_one_line(done, "another broker is using the data folder data")


def test_a_data_folder_that_cannot_be_one_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert_one_line(start(*ANY_PORTS, "--data-dir", "file", cwd=tmp_path), "file")
    assert_one_line(start(*ANY_PORTS, "--data-dir", "/proc/nowhere", cwd=tmp_path), "/proc/nowhere")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "no.such.setting=1"], ["no.such.setting"]),
        (["--set", "num.partitions=many"], ["num.partitions", "many", "whole number"]),
        (["--set", "num.partitions=0"], ["num.partitions", "0"]),
        (["--set", "num.partitions"], ["num.partitions"]),
        (["--listen", "nonsense"], ["--listen", "HOST:PORT"]),
        (["--listen", "0.0.0.0:0"], ["--insecure"]),
        (["--listen", "0.0.0.0:0", "--insecure"], ["advertised.listeners=HOST:PORT"]),
        (["--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"], ["clients cannot connect"]),
        (["--set", "advertised.listeners=SSL://host:9093"], ["SSL", "PLAINTEXT"]),
        (["--broker-id", "-1"], ["--broker-id"]),
        (["--config", "missing.toml"], ["missing.toml"]),
    ],
)
def test_a_bad_setting_is_one_clear_line(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    assert_one_line(start(*ANY_PORTS, *arguments, cwd=tmp_path), *words)


def test_clients_get_the_advertised_listener(tmp_path: Path) -> None:
    """`PLAINTEXT://localhost:PORT`, as Kafka writes it, seen by a client."""
    port, push, http = free_ports(3)
    settings = {"advertised.listeners": f"PLAINTEXT://localhost:{port}"}
    process = BrokerProcess(tmp_path / "data", settings=settings)
    process.bootstrap, process.push = f"127.0.0.1:{port}", f"127.0.0.1:{push}"
    process.http = f"127.0.0.1:{http}"
    process.start()
    try:
        found = AdminClient({"bootstrap.servers": process.bootstrap}).list_topics(
            timeout=SECONDS_MAX
        )
        (broker,) = found.brokers.values()
        assert (broker.host, broker.port) == ("localhost", port)
    finally:
        process.kill()


def test_settings_come_from_a_file_and_set_wins(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text('[log]\nretention.hours = 1\n"segment.bytes" = 2048\n')
    (tmp_path / "broken.toml").write_text("= 1")
    assert_one_line(start("--config", "broken.toml", cwd=tmp_path), "broken.toml", "TOML")
    (tmp_path / "unknown.toml").write_text("nope = 1")
    assert_one_line(start("--config", "unknown.toml", cwd=tmp_path), "nope")
