"""A broker in its own process, for tests that kill it."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from zhumq.host.ports import HOST, free_ports

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
# For brokers of tests that are not about the disk of the machine, which may be nearly full.
NO_WATERMARKS: Final = {
    f"disk.watermark.{name}.percent": "100" for name in ("expired", "forced", "refused")
}
_READY = re.compile(r"^zhumq ready kafka=(?P<kafka>\S+) push=(?P<push>\S+) http=(?P<http>\S+) ")


class BrokerProcess:
    """`zhumq start` on free ports, which stay the same across restarts."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        broker_id: int = 0,
        zookeeper: str | None = None,
        program: Sequence[str] = ("-m", "zhumq"),
        options: Sequence[str] = (),
    ) -> None:
        """`program` is what Python runs: a test may wrap `zhumq`, to inject faults into it.

        `options` are further ones of `zhumq start`.
        """
        self._options = tuple(options)
        self.program = tuple(program)
        self.data_dir = data_dir
        self.broker_id = broker_id
        self.zookeeper = zookeeper
        self.bootstrap = ""
        self.http = ""
        self.push = ""
        self.ready_line = ""
        self._settings = dict(settings or {})
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._log_path = data_dir.with_name(f"{data_dir.name}.log")

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to stderr so far."""
        return self._log_path.read_text() if self._log_path.exists() else ""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it serves. Raises RuntimeError with its log if it does not."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start it without waiting."""
        if not self.bootstrap:
            self.bootstrap, self.push, self.http = (f"{HOST}:{port}" for port in free_ports(3))
        command = [sys.executable, *self.program, "start"]
        if "listeners" not in self._settings:
            command += ["--listen", self.bootstrap]
        command += ["--http", self.http, "--push", self.push]
        command += ["--data-dir", str(self.data_dir)]
        command += ["--broker-id", str(self.broker_id)]
        if self.zookeeper is not None:
            command += ["--zookeeper", self.zookeeper]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        command += self._options
        with open(self._log_path, "a") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )

    def wait_until_ready(self) -> None:
        """Return when it serves. Raises RuntimeError with its log if it does not."""
        self.ready_line = self._read_line()
        ready = _READY.match(self.ready_line)
        if ready is None:
            self.kill()
            raise RuntimeError(f"no ready line but {self.ready_line!r}; its log:\n{self.log}")
        self.bootstrap, self.push, self.http = ready["kafka"], ready["push"], ready["http"]

    def kill(self) -> None:
        """Send SIGKILL: it cannot write anything more."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Send SIGSTOP: it keeps its connections and answers no request."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, with_signal: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        try:
            process.send_signal(with_signal)
            process.send_signal(signal.SIGCONT)  # A paused process handles no signal but SIGKILL.
            return process.wait(STOP_SECONDS_MAX)
        finally:
            # Also after Ctrl-C: no other code knows this process.
            process.kill()
            with process:
                self._process = None

    def _read_line(self) -> str:
        assert self._process is not None
        output = self._process.stdout
        assert output is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        readable, _, _ = select.select([output], [], [], deadline - time.monotonic())
        return output.readline() if readable else ""


@contextlib.contextmanager
def broker_process(
    data_dir: Path,
    *,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[BrokerProcess]:
    """A running broker process; killed at the end of the block if it still runs."""
    process = BrokerProcess(data_dir, settings=settings, environment=environment, options=options)
    process.start()
    try:
        yield process
    finally:
        process.kill()
