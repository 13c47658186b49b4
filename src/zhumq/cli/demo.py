"""`zhumq demo`: run a broker, send a shop's logs through it, and process them with pipelines on Spark."""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from zhumq.cli import demo_shop as shop
from zhumq.cli.local_cluster import line_within
from zhumq.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_HTTP, CommandFailed
from zhumq.cli.sample import LogLine, expected_errors, sample_lines
from zhumq.model.address import parse_address
from zhumq.pipelines.status import State, StatusFile

BURST = 20  # errors of one service in one minute
READY_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 60.0
PIPELINES = ("archive", "inspect", "audit")
# With this little data Java's second compiler costs more time than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker in its own process that has printed its ready line."""

    process: "subprocess.Popen[str]"
    bootstrap: str
    data_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The output paths of the demo's pipelines."""

    folder: Path

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def archive(self) -> Path:
        return self.folder / "tables" / shop.TOPIC

    @property
    def inspected(self) -> Path:
        return self.folder / "tables" / f"{shop.TOPIC}-inspected"

    @property
    def chart(self) -> Path:
        return self.folder / "inspected.png"

    @property
    def audit(self) -> Path:
        return self.folder / "audit.json"


app = typer.Typer()


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Stop after the summary.")] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Run the pipelines, which need Spark.")
    ] = True,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Default: 127.0.0.1:9092, or a free port if that is in use."
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.")] = Path(
        "zhumq-data"
    ),
) -> None:
    """Start a broker and process the logs of a small shop with it.

    Sends an hour of log lines, reads them back with a group of consumers, archives, inspects and audits
    them on Spark, prints the results and serves until Ctrl-C.
    """
    places = Places(folder=data_dir.with_name(f"{data_dir.name}-pipelines"))
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _broker(listen or _free_address(DEFAULT_BOOTSTRAP), data_dir) as broker:
            lines = sample_lines()
            _fill(broker.bootstrap, lines, places)
            shares = shop.read_with_group(broker.bootstrap, lines)
            counted = " + ".join(f"{share:,}" for share in shares)
            _report("read", f"{counted} lines by {len(shares)} consumers, none missing or twice")
            if spark:
                _run_pipelines(broker.bootstrap, places)
                _check_pipelines(broker.bootstrap, lines, places)
            _print_hints(broker, places if spark else None, once=once)
            if not once:
                _serve_until_interrupt(broker)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _fill(bootstrap: str, lines: list[LogLine], places: Places) -> None:
    """Send the sample to its topic, unless an earlier run has done so."""
    held = shop.count_of(bootstrap, shop.TOPIC)
    if held == len(lines):
        _report("sent", f"{shop.TOPIC} has its {held:,} log lines already")
        return
    # The pipelines' state belongs to another sample.
    shutil.rmtree(places.folder, ignore_errors=True)
    shop.recreate_topics(bootstrap)
    seconds = shop.send(bootstrap, lines)
    anew = " (recreated)" if held else ""
    _report(
        "sent",
        f"{len(lines):,} log lines to {shop.TOPIC}{anew} in {seconds:.2f} s, each on disk (acks=all)",
    )


def _run_pipelines(bootstrap: str, places: Places) -> None:
    sys.stdout.write("\nPipelines on Spark (its start takes some seconds):\n")
    sys.stdout.flush()
    values = {
        "topic": shop.TOPIC,
        "alerts": shop.ALERTS,
        "dead_letters": shop.DEAD_LETTERS,
        "burst": str(BURST),
        "picture": str(places.chart),
        "report": str(places.audit),
    }
    command = [sys.executable, "-m", "zhumq", "pipeline", "run", *PIPELINES]
    command += ["--bootstrap", bootstrap, "--state-dir", str(places.state_dir)]
    for name, value in values.items():
        command += ["--set", f"{name}={value}"]
    # A new session, as for the broker: this command forwards a Ctrl-C, and Spark's Java does not get it.
    process = subprocess.Popen(  # noqa: S603  our own program
        [*command, "--set", f"tables={places.folder / 'tables'}"],
        env={"JDK_JAVA_OPTIONS": QUICK_JAVA, **os.environ},
        start_new_session=True,
    )
    try:
        code = process.wait()
    finally:
        _stop(process, signal.SIGINT)
    if code != 0:
        raise CommandFailed(f"a pipeline failed; Spark's log is in {places.state_dir}")
    sys.stdout.write("\n")


def _check_pipelines(bootstrap: str, lines: list[LogLine], places: Places) -> None:
    """Check the output of each pipeline against the sample, whose every line is known."""
    for name in PIPELINES:
        status = StatusFile(places.state_dir, f"{name}-{shop.TOPIC}").read()
        if status is None or status.state is not State.DONE:
            raise CommandFailed(f"the pipeline {name} is not done: see {places.state_dir}")
    _report("archive", f"{len(lines):,} records in {places.archive}, each once (audit)")
    broken = sum(line.level is None for line in lines)
    # Imported here: it needs the Spark extra, and the demo works without that.
    inspection = importlib.import_module("zhumq.pipelines.inspection")
    found = inspection.read_inspection(str(places.inspected), burst=BURST)
    errors = {
        (service, minute): count
        for service, minutes in found.errors.items()
        for minute, count in minutes.items()
    }
    expected = expected_errors(lines)
    if errors != expected or found.lines != len(lines) - broken:
        raise CommandFailed("the inspection did not find what is in the sample")
    _report("inspect", f"{sum(errors.values()):,} errors, {len(found.bursts)} bursts")
    dead_letters = {
        (shop.header(each, "zhumq.partition"), shop.header(each, "zhumq.offset"))
        for each in shop.read_all(bootstrap, shop.DEAD_LETTERS)
    }
    if len(dead_letters) != broken:
        raise CommandFailed(
            f"{len(dead_letters)} of {broken} broken lines are in {shop.DEAD_LETTERS}"
        )
    _report("dlq", f"{broken} broken lines in {shop.DEAD_LETTERS}, each with the reason")
    alerts = {each.key() for each in shop.read_all(bootstrap, shop.ALERTS)}
    hot = sum(count >= BURST for count in expected.values())
    if len(alerts) != hot:
        raise CommandFailed(f"{len(alerts)} of {hot} alerts are in {shop.ALERTS}")
    _report("alerts", f"{hot} minutes of bursts in {shop.ALERTS}")


@contextmanager
def _broker(listen: str, data_dir: Path) -> Iterator[RunningBroker]:
    command = [sys.executable, "-m", "zhumq", "start", "--listen", listen]
    command += ["--http", _free_address(DEFAULT_HTTP), "--data-dir", str(data_dir)]
    command += ["--log-level", "warning"]
    began = time.monotonic()
    # A new session: a Ctrl-C goes to this command, which stops the broker after its own work.
    process = subprocess.Popen(  # noqa: S603  our own program
        command, stdout=subprocess.PIPE, stderr=None, text=True, start_new_session=True
    )
    try:
        facts = _await_ready(process)
        _report("broker", f"{facts['kafka']}, ready in {time.monotonic() - began:.2f} s")
        yield RunningBroker(process=process, bootstrap=facts["kafka"], data_dir=facts["data"])
    finally:
        _stop(process, signal.SIGTERM)
    if process.returncode != 0:
        raise CommandFailed(f"the broker stopped with exit code {process.returncode}")


def _await_ready(process: "subprocess.Popen[str]") -> dict[str, str]:
    """The fields of the ready line. A broker that exits instead has printed the reason to stderr."""
    assert process.stdout is not None
    line = line_within(process.stdout, READY_TIMEOUT_SECONDS)
    if not line.startswith("zhumq ready "):
        raise CommandFailed("the broker did not start")
    return dict(word.split("=", 1) for word in line.split()[2:] if "=" in word)


def _stop(process: "subprocess.Popen[Any]", number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _print_hints(broker: RunningBroker, places: Places | None, *, once: bool) -> None:
    program = Path(sys.argv[0])
    command = os.path.relpath(program) if program.name == "zhumq" else "zhumq"
    option = "" if broker.bootstrap == DEFAULT_BOOTSTRAP else f" --bootstrap {broker.bootstrap}"
    beginning = (
        "Start the broker again, and in another terminal look around"
        if once
        else "Try next, in another terminal"
    )
    hints = [f"{command} start --listen {broker.bootstrap} --data-dir {broker.data_dir}"] * once
    hints += [
        f"{command} topic describe {shop.TOPIC}{option}",
        f"{command} consume {shop.TOPIC} --max 5{option}",
        f"{command} group describe {shop.GROUP}{option}",
    ]
    if places is not None:
        sys.stdout.write(
            f"\nchart      {places.chart}\n"
            f"tables     {places.archive}\n           {places.inspected}\n"
            f"topics     {shop.TOPIC}, {shop.ALERTS}, {shop.DEAD_LETTERS}\n"
        )
        state = f" --state-dir {places.state_dir}"
        hints += [
            f"{command} consume {shop.ALERTS} --until-end{option}",
            f"{command} consume {shop.DEAD_LETTERS} --until-end --json{option}",
            f"{command} pipeline status{state}",
            f"{command} group describe archive-{shop.TOPIC}{option}",
        ]
    sys.stdout.write(f"\n{beginning}:\n" + "".join(f"  {hint}\n" for hint in hints))
    sys.stdout.write(f"or point any Kafka client at {broker.bootstrap}\n")
    sys.stdout.flush()


def _serve_until_interrupt(broker: RunningBroker) -> None:
    try:
        sys.stdout.write("\nServing until Ctrl-C.\n")
        sys.stdout.flush()
        broker.process.wait()
    except KeyboardInterrupt:
        sys.stdout.write("\nstopping\n")
        sys.stdout.flush()


def _free_address(preferred: str) -> str:
    """The preferred address if it is free, else the same host with any free port."""
    address = parse_address(preferred)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return f"{address.host}:0"
    return preferred


def _report(stage: str, words: str) -> None:
    """Print one finished stage of the demo."""
    mark = "\x1b[32m\u2713\x1b[0m" if sys.stdout.isatty() else "ok"
    sys.stdout.write(f"{mark} {stage:<10}{words}\n")
    sys.stdout.flush()
