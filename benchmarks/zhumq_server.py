"""zhumq as the benchmark and the conformance suites start it: a process of its own on free ports."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.server import (
    POLL_INTERVAL_S,
    READY_WAIT_S,
    REPOSITORY,
    Server,
    ServerFailed,
    free_ports,
)

PROGRAM = REPOSITORY / ".venv" / "bin" / "zhumq"


def start_zhumq(directory: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Start a broker with its data below `directory`; returns once it has printed its ready line."""
    server = launch_zhumq(directory, settings=settings)
    deadline = time.monotonic() + READY_WAIT_S
    ready = directory / "zhumq.out"
    while not (line := ready.read_text()).startswith("zhumq ready") or "\n" not in line:
        if server.process.poll() is not None or time.monotonic() > deadline:
            server.stop()
            raise ServerFailed(f"zhumq did not become ready\n{server.last_log_lines()}")
        time.sleep(POLL_INTERVAL_S)
    return server


def launch_zhumq(directory: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Start the process and return at once: the measurement of the start time waits by itself."""
    data = directory / "zhumq-data"
    log = directory / "zhumq.log"
    # A known port, so that the first request can be tried before the ready line is there.
    kafka_port = free_ports(1)[0]
    pairs = [f"--set={key}={value}" for key, value in (settings or {}).items()]
    with log.open("ab") as stderr, (directory / "zhumq.out").open("wb") as stdout:
        process = subprocess.Popen(
            [PROGRAM, "start", "--listen", f"127.0.0.1:{kafka_port}", "--http", "127.0.0.1:0",
             "--data-dir", data, "--broker-id", "0", *pairs],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    return Server(
        name="zhumq", process=process, bootstrap=f"127.0.0.1:{kafka_port}", data=data, log=log
    )
