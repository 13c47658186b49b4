"""A broker process under measurement: starts it, waits for it, reads its CPU and memory, stops it."""

import os
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = REPOSITORY / "build"
READY_WAIT_S = 60.0
STOP_WAIT_S = 30.0
POLL_INTERVAL_S = 0.005
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# | size i32 | api key i16 = ApiVersions | version i16 = 0 | correlation id i32 | client id string = "b" |
API_VERSIONS_V0 = struct.pack(">ihhihc", 11, 18, 0, 1, 1, b"b")


class ServerFailed(Exception):
    """The process ended, or did not answer in time; the message ends with its last log lines."""


class Measured(Protocol):
    """What a case loads: one broker, or a cluster."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def ca_file(self) -> str:
        """The certificate that clients trust; empty: no TLS."""

    def cpu_seconds(self) -> float: ...


class Server:
    """One running broker process; use it as a context manager."""

    def __init__(
        self,
        *,
        name: str,
        process: subprocess.Popen[bytes],
        bootstrap: str,
        data: Path,
        log: Path,
        ca_file: str = "",
    ) -> None:
        self.name = name
        self.process = process
        self.bootstrap = bootstrap
        self.ca_file = ca_file
        self.data = data
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_seconds(self) -> float:
        """utime + stime of the process so far, all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ServerFailed(f"{self.name} has no resident memory: it ended\n{self.last_log_lines()}")

    def last_log_lines(self, count: int = 15) -> str:
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def stop(self) -> int:
        """Send SIGTERM, SIGKILL if the process does not end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A server ready to be launched: its folders exist and its storage is formatted."""

    name: str
    command: tuple[str, ...]
    bootstrap: str
    data: Path
    log: Path
    output: Path
    ca_file: str = ""

    def launch(self) -> Server:
        """Start the process and return at once; it does not answer yet."""
        with self.log.open("ab") as stderr, self.output.open("wb") as stdout:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        return Server(
            name=self.name,
            process=process,
            bootstrap=self.bootstrap,
            data=self.data,
            log=self.log,
            ca_file=self.ca_file,
        )

    def start(self, wait_s: float = READY_WAIT_S) -> Server:
        """Start the process and return once it answers."""
        server = self.launch()
        wait_until(lambda: serves(server.bootstrap, server.ca_file), server, wait_s)
        return server


def wait_until(fact: Callable[[], bool], server: Server, wait_s: float = READY_WAIT_S) -> None:
    deadline = time.monotonic() + wait_s
    while not fact():
        if server.process.poll() is not None:
            raise ServerFailed(
                f"{server.name} ended with {server.process.returncode}\n{server.last_log_lines()}"
            )
        if time.monotonic() > deadline:
            server.stop()
            raise ServerFailed(
                f"{server.name} did not serve in {wait_s} s\n{server.last_log_lines()}"
            )
        time.sleep(POLL_INTERVAL_S)


def serves(bootstrap: str, ca_file: str = "") -> bool:
    """Does the address answer an ApiVersions request?"""
    host, _, port = bootstrap.rpartition(":")
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=1))
            if ca_file:
                context = ssl.create_default_context(cafile=ca_file)
                connection = stack.enter_context(
                    context.wrap_socket(connection, server_hostname=host)
                )
            connection.sendall(API_VERSIONS_V0)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Free ports; all are held at once, so they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
