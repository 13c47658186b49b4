"""`zhumq demo`: start a broker, send a sample through it, read it back, say what to try next."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from zhumq.cli.client import (
    REQUEST_TIMEOUT_SECONDS,
    client_settings,
    connect_admin,
    describe_topic,
    list_topics,
    settle,
)
from zhumq.cli.messages import OutgoingMessage
from zhumq.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_HTTP, CommandFailed
from zhumq.cli.positions import LATEST, Position, resolve_offsets
from zhumq.cli.produce import Outbox
from zhumq.cli.sample import LEVELS, LogLine, sample_lines

TOPIC = "sample-logs"
PARTITIONS = 3
MESSAGES = 20_000
READY_TIMEOUT_SECONDS = 30.0
READ_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker in a process of its own that has said it is ready."""

    process: "subprocess.Popen[str]"
    bootstrap: str
    data_dir: str


app = typer.Typer()


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Stop after the summary.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="127.0.0.1:9092, or a free port if it is taken."),
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where messages are kept.")] = Path(
        "zhumq-data"
    ),
) -> None:
    """Start a broker and try it with a sample.

    Sends application log lines, reads them back, prints a summary and serves until Ctrl-C.
    """
    with _broker(listen or _free_address(DEFAULT_BOOTSTRAP), data_dir) as broker:
        _make_topic(broker.bootstrap)
        lines = list(sample_lines(MESSAGES))
        began_at = _latest(broker.bootstrap)
        _report("topic", f"{TOPIC}, {len(began_at)} partitions")
        _send(broker.bootstrap, lines)
        levels = _read_back(broker.bootstrap, lines, began_at)
        counted = ", ".join(f"{levels[level]:,} {level}" for level in LEVELS)
        _report("inspected", counted)
        _say_what_next(broker, once=once)
        if not once:
            _serve_until_interrupt(broker)


@contextmanager
def _broker(listen: str, data_dir: Path) -> Iterator[RunningBroker]:
    command = [sys.executable, "-m", "zhumq", "start", "--listen", listen]
    command += ["--http", _free_address(DEFAULT_HTTP), "--data-dir", str(data_dir)]
    command += ["--log-level", "warning"]
    began = time.monotonic()
    # Its own session: a Ctrl-C is ours to pass on, once what is under way here has ended.
    process = subprocess.Popen(  # noqa: S603  our own program
        command, stdout=subprocess.PIPE, stderr=None, text=True, start_new_session=True
    )
    try:
        facts = _await_ready(process)
        _report("broker", f"{facts['kafka']}, ready in {time.monotonic() - began:.2f} s")
        yield RunningBroker(process=process, bootstrap=facts["kafka"], data_dir=facts["data"])
    finally:
        _stop(process)
    if process.returncode != 0:
        raise CommandFailed(f"the broker stopped with exit code {process.returncode}")


def _await_ready(process: "subprocess.Popen[str]") -> dict[str, str]:
    """The facts of the ready line; a broker that ends instead has said why on stderr."""
    assert process.stdout is not None
    with _deadline(READY_TIMEOUT_SECONDS, process):
        line = process.stdout.readline()
    if not line.startswith("zhumq ready "):
        raise CommandFailed("the broker did not start")
    return dict(word.split("=", 1) for word in line.split()[2:] if "=" in word)


@contextmanager
def _deadline(seconds: float, process: "subprocess.Popen[str]") -> Iterator[None]:
    """A broker that stays silent is ended, so that reading from it returns."""

    def give_up(_number: int, _frame: Any) -> None:
        process.kill()

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _make_topic(bootstrap: str) -> None:

    admin = connect_admin(bootstrap)
    if TOPIC not in list_topics(admin).topics:
        futures = admin.create_topics(
            [NewTopic(TOPIC, num_partitions=PARTITIONS)], request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        settle(futures[TOPIC], f"create {TOPIC!r}")


def _latest(bootstrap: str) -> dict[int, int]:
    admin = connect_admin(bootstrap)
    numbers = [entry.id for entry in describe_topic(admin, TOPIC).partitions]
    return resolve_offsets(admin, TOPIC, numbers, Position(edge=LATEST))


def _send(bootstrap: str, lines: list[LogLine]) -> None:
    settings = client_settings(bootstrap) | {"acks": "all", "enable.idempotence": True}
    outbox = Outbox(TOPIC, settings)
    began = time.monotonic()
    for line in lines:
        outbox.send(OutgoingMessage(key=line.service.encode(), value=line.text.encode()))
    outbox.flush()
    seconds = time.monotonic() - began
    _report("sent", f"{len(lines):,} log lines in {seconds:.2f} s, each on disk (acks=all)")


def _read_back(bootstrap: str, lines: list[LogLine], began_at: dict[int, int]) -> Counter[str]:
    """Read what was sent; every line once, and each service's lines in their order."""

    consumer = Consumer(
        client_settings(bootstrap) | {"group.id": "zhumq-demo", "enable.auto.commit": False}
    )
    began = time.monotonic()
    arrived: dict[str, list[str]] = {}
    levels: Counter[str] = Counter()
    count = 0
    try:
        consumer.assign([TopicPartition(TOPIC, *place) for place in began_at.items()])
        while count < len(lines):
            if time.monotonic() - began > READ_TIMEOUT_SECONDS:
                raise CommandFailed(f"only {count} of {len(lines)} messages came back")
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is not None:
                    continue
                key, text = (message.key() or b"").decode(), (message.value() or b"").decode()
                arrived.setdefault(key, []).append(text)
                levels[text.split()[1]] += 1
                count += 1
    finally:
        consumer.close()
    sent: dict[str, list[str]] = {}
    for line in lines:
        sent.setdefault(line.service, []).append(line.text)
    if arrived != sent:
        raise CommandFailed("what was read is not what was sent")
    seconds = time.monotonic() - began
    _report("read", f"{count:,} log lines in {seconds:.2f} s, none missing, each service in order")
    return levels


def _say_what_next(broker: RunningBroker, *, once: bool) -> None:
    program = Path(sys.argv[0])
    command = os.path.relpath(program) if program.name == "zhumq" else "zhumq"
    option = "" if broker.bootstrap == DEFAULT_BOOTSTRAP else f" --bootstrap {broker.bootstrap}"
    again = f"  {command} start --listen {broker.bootstrap} --data-dir {broker.data_dir}\n"
    beginning = (
        "Start the broker again, and in another terminal look around"
        if once
        else ("Try next, in another terminal")
    )
    sys.stdout.write(
        f"\n{beginning}:\n{again if once else ''}"
        f"  {command} topic describe {TOPIC}{option}\n"
        f"  {command} consume {TOPIC} --max 5{option}\n"
        f"  {command} consume {TOPIC} --group readers --until-end{option} | grep ERROR\n"
        f"  {command} group describe readers{option}\n"
        f"  {command} dump-log {broker.data_dir}/{TOPIC}-0/{0:020d}.log\n"
        f"or point any Kafka client at {broker.bootstrap}\n"
    )
    sys.stdout.flush()


def _serve_until_interrupt(broker: RunningBroker) -> None:
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.stdout.write("\nServing until Ctrl-C.\n")
        sys.stdout.flush()
        broker.process.wait()
    except KeyboardInterrupt:
        sys.stdout.write("\nstopping\n")
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGTERM, previous)


def _free_address(wanted: str) -> str:
    """The wanted address if nobody listens there, else any free port."""
    host, _, port = wanted.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return wanted


def _report(stage: str, words: str) -> None:
    """One finished stage of the demonstration."""
    mark = "\x1b[32m\u2713\x1b[0m" if sys.stdout.isatty() else "ok"
    sys.stdout.write(f"{mark} {stage:<10}{words}\n")
    sys.stdout.flush()
