"""Runs brokers as child processes, for trying a cluster on one machine."""

import contextlib
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from zhumq.cli.options import CommandFailed

HOST: Final = "127.0.0.1"
READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
WATCH_SECONDS: Final = 0.5  # the wait for the end of one child
_READY: Final = "zhumq ready "


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChild:
    """A broker that runs as a child process."""

    broker_id: int
    command: Sequence[str]
    log: Path
    process: "subprocess.Popen[str]"

    @property
    def restart_command(self) -> str:
        return shlex.join(["zhumq", *self.command[3:]])


def start_broker(
    broker_id: int,
    folder: Path,
    *,
    zookeeper: str,
    port: int,
    http_port: int,
    settings: Mapping[str, str],
) -> BrokerChild:
    """Start a broker without waiting until it serves."""
    data_dir = folder / f"broker-{broker_id}"
    command = [sys.executable, "-m", "zhumq", "start", "--broker-id", str(broker_id)]
    command += ["--zookeeper", zookeeper, "--data-dir", str(data_dir)]
    command += ["--listen", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}"]
    # The default push port is another broker's port for Kafka clients here.
    command += ["--push", f"{HOST}:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = folder / f"broker-{broker_id}.log"
    with open(log, "a") as output:
        # A new session: a Ctrl-C goes only to this command, which then stops its children in order.
        process = subprocess.Popen(  # noqa: S603 (our own program)
            command, stdout=subprocess.PIPE, stderr=output, text=True, start_new_session=True
        )
    return BrokerChild(broker_id=broker_id, command=command, log=log, process=process)


def ready_line(child: BrokerChild) -> str:
    """The broker's ready line. Raises CommandFailed with the last line of its log if it does not serve."""
    output = child.process.stdout
    assert output is not None
    line = line_within(output, READY_SECONDS_MAX)
    if not line.startswith(_READY):
        raise CommandFailed(
            f"broker {child.broker_id} does not serve: {_last_line(child.log) or 'its log is empty'}"
        )
    return line.rstrip("\n")


def stop_brokers(children: Sequence[BrokerChild]) -> None:
    """Send SIGTERM to all, then wait for each; kill those that do not end."""
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
    for child in children:
        try:
            child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
        if child.process.stdout is not None:
            child.process.stdout.close()


def ended(children: Sequence[BrokerChild]) -> Iterator[BrokerChild]:
    """Yield each child when it ends, until the last one has ended."""
    running = list(children)
    while running:
        for child in list(running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(WATCH_SECONDS)
                running.remove(child)
                yield child


def line_within(output: IO[str], seconds: float) -> str:
    """The next line of a child; empty if it ends, or prints none within this time."""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        return output.readline() if selector.select(seconds) else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("zhumq: ") if lines else ""
