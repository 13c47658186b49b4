"""ZooKeeper and brokers as children of one command, for trying a cluster on one machine."""

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
WATCH_SECONDS: Final = 0.5  # how long a look at one child may take
_READY: Final = "zhumq ready "


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChild:
    """A broker that runs as a child, and how to run it again by hand."""

    broker_id: int
    command: Sequence[str]
    log: Path
    process: "subprocess.Popen[str]"

    @property
    def by_hand(self) -> str:
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
    """Run a broker and do not wait for it."""
    data_dir = folder / f"broker-{broker_id}"
    command = [sys.executable, "-m", "zhumq", "start", "--broker-id", str(broker_id)]
    command += ["--zookeeper", zookeeper, "--data-dir", str(data_dir)]
    command += ["--listen", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}"]
    # Its well-known port is another broker's port for Kafka clients here.
    command += ["--push", f"{HOST}:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = folder / f"broker-{broker_id}.log"
    with open(log, "a") as output:
        # A Ctrl-C in the terminal is for the command, which then stops its children in order.
        process = subprocess.Popen(  # noqa: S603 (our own program)
            command, stdout=subprocess.PIPE, stderr=output, text=True, start_new_session=True
        )
    return BrokerChild(broker_id=broker_id, command=command, log=log, process=process)


def ready_line(child: BrokerChild) -> str:
    """What the broker says when it serves. Raises CommandFailed with its last words if it ends."""
    output = child.process.stdout
    assert output is not None
    line = _line_within(output, READY_SECONDS_MAX)
    if not line.startswith(_READY):
        raise CommandFailed(
            f"broker {child.broker_id} does not serve: {_last_line(child.log) or 'no word of why'}"
        )
    return line.rstrip("\n")


def stop_brokers(children: Sequence[BrokerChild]) -> None:
    """SIGTERM to all, then wait for each; what does not end is killed."""
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
    """Each child as it ends by itself, until the last one has."""
    running = list(children)
    while running:
        for child in list(running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(WATCH_SECONDS)
                running.remove(child)
                yield child


def _line_within(output: IO[str], seconds: float) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        return output.readline() if selector.select(seconds) else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("zhumq: ") if lines else ""
