"""`zhumq demo`: a broker with its console, a shop's logs, pipelines on Spark over them, and live traffic."""

import contextlib
import importlib
import importlib.util
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
from zhumq.cli.demo_refunds import can_refund
from zhumq.cli.demo_traffic import run_traffic
from zhumq.cli.local_cluster import line_within
from zhumq.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_HTTP, CommandFailed
from zhumq.cli.sample import LogLine, expected_errors, sample_lines
from zhumq.model.address import parse_address
from zhumq.pipelines.status import State, StatusFile

BURST = 20  # errors of one service in one minute
READY_TIMEOUT_SECONDS = 90.0  # one that fails ends, which is seen at once
STOP_TIMEOUT_SECONDS = 60.0
DEFAULT_WEB = "127.0.0.1:8080"
WEB_PORTS_MAX = 50  # that are tried
# So that the session of a consumer that does not answer is parked within seconds.
PARK_SOON = {"push.retries.max": "2", "push.retry.backoff.ms": "500"}
PIPELINES = ("archive", "inspect", "audit")
# With this little data Java's second compiler costs more time than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker in its own process that has printed its ready line."""

    process: "subprocess.Popen[str]"
    bootstrap: str
    data_dir: str
    has_push: bool
    web: str | None  # the address of the console


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
    web: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the console is. Default: 127.0.0.1:8080, or the next free port.",
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.")] = Path(
        "zhumq-data"
    ),
) -> None:
    """Start a broker with its console, and run a small shop on it.

    Sends an hour of log lines, reads them back with a group of consumers, archives, inspects and audits
    them on Spark, and prints the results. Then the shop is open until Ctrl-C: orders, payments and
    deliveries, to look at in the console.
    """
    places = Places(folder=data_dir.with_name(f"{data_dir.name}-pipelines"))
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        console = None if once else _console_address(web)
        with _broker(listen or _free_address(DEFAULT_BOOTSTRAP), data_dir, console) as broker:
            lines = sample_lines()
            _fill(broker.bootstrap, lines, places)
            shares = shop.read_with_group(broker.bootstrap, lines)
            counted = " + ".join(f"{share:,}" for share in shares)
            _report("read", f"{counted} lines by {len(shares)} consumers, none missing or twice")
            spark = spark and _has_spark()
            if spark:
                _run_pipelines(broker.bootstrap, places)
                _check_pipelines(broker.bootstrap, lines, places)
            _print_hints(broker, places if spark else None, once=once)
            if not once:
                _print_console(broker, has_pipelines=spark)
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
    # Published, so that the console shows the runs.
    command += ["--bootstrap", bootstrap, "--state-dir", str(places.state_dir), "--publish"]
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
def _broker(listen: str, data_dir: Path, web: str | None) -> Iterator[RunningBroker]:
    command = [sys.executable, "-m", "zhumq", "start", "--listen", listen]
    command += ["--http", _free_address(DEFAULT_HTTP), "--data-dir", str(data_dir)]
    command += ["--log-level", "warning"]
    for name, value in PARK_SOON.items():
        command += ["--set", f"{name}={value}"]
    command += ["--web", web] if web is not None else []
    began = time.monotonic()
    # A new session: a Ctrl-C goes to this command, which stops the broker after its own work.
    process = subprocess.Popen(  # noqa: S603  our own program
        command, stdout=subprocess.PIPE, stderr=None, text=True, start_new_session=True
    )
    try:
        facts = _await_ready(process)
        _report("broker", f"{facts['kafka']}, ready in {time.monotonic() - began:.2f} s")
        yield RunningBroker(
            process=process,
            bootstrap=facts["kafka"],
            data_dir=facts["data"],
            has_push=facts["push"] != "off",
            web=facts.get("web"),
        )
    finally:
        _stop(process, signal.SIGTERM)
    if process.returncode != 0:
        raise CommandFailed(_stopped(process.returncode))


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


def _print_console(broker: RunningBroker, *, has_pipelines: bool) -> None:
    """Print the address of the console last, with what there is to see in it."""
    if broker.web is None:
        return
    sights = {
        "": "the overview: the brokers, and what needs attention",
        "topics/orders/messages": "JSON with keys and tags: the live tail, a key, a filter",
        "groups/warehouse": "a slow group: its lag grows with the burst of each minute, and falls",
        "dead-letters": "deliveries without an address: edit and replay one",
        "topics/deliveries/scheduled": "messages for later",
        "sessions": "a consumer that does not answer: its session is parked",
        "half-messages": "orders by phone, until the bank agrees",
        "schemas": "the versions of a schema; /topics/refunds/messages has messages with it",
    }
    if not can_refund():
        del sights["schemas"]
    if has_pipelines:
        found = "what the inspection has found in the log lines: bursts of errors"
        sights[f"pipelines/inspect-{shop.TOPIC}"] = found
    if not broker.has_push:
        without = ("dead-letters", "sessions", "half-messages")
        sights = {path: words for path, words in sights.items() if path not in without}
        sys.stdout.write(
            "\nno couriers, no partner and no orders by phone: pip install 'zhumq[push]'\n"
        )
    width = max(map(len, sights)) + len(broker.web) + 3
    rows = "".join(
        f"  {f'{broker.web}/{path}':<{width}}{words}\n" for path, words in sights.items()
    )
    sys.stdout.write(f"\nThe console, with a shop that is open:\n{rows}")


def _serve_until_interrupt(broker: RunningBroker) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        run_traffic(
            broker.bootstrap,
            has_push=broker.has_push,
            on_open=_print_serving,
            on_check=lambda: _exit_without(broker.process),
        )


def _exit_without(broker: "subprocess.Popen[str]") -> None:
    """End at once if the broker is gone: its clients would try for minutes to leave in order, with nothing to save."""
    code = broker.poll()
    if code is not None:
        sys.stderr.write(f"zhumq: {_stopped(code)}\n")
        sys.stderr.flush()
        os._exit(1)


def _stopped(code: int) -> str:
    return f"the broker stopped with exit code {code}"


def _print_serving() -> None:
    sys.stdout.write("\nServing until Ctrl-C.\n")
    sys.stdout.flush()


def _console_address(web: str | None) -> str | None:
    """Where the console is to listen; None without the extra `console`."""
    missing = [name for name in ("starlette", "uvicorn", "msgspec") if not _is_installed(name)]
    if missing:
        _report(
            "console", f"off: it needs {missing[0]}: pip install 'zhumq[console]'", is_done=False
        )
        return None
    return web or _next_free_address(DEFAULT_WEB)


def _has_spark() -> bool:
    if _is_installed("pyspark"):
        return True
    _report("pipelines", "off: they need pyspark: pip install 'zhumq[spark]'", is_done=False)
    return False


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _free_address(preferred: str) -> str:
    """The preferred address if it is free, else the same host with any free port."""
    address = parse_address(preferred)
    return preferred if _is_free(address.host, address.port) else f"{address.host}:0"


def _next_free_address(preferred: str) -> str:
    """The preferred address, or the next port that is free: a person remembers it."""
    address = parse_address(preferred)
    for port in range(address.port, address.port + WEB_PORTS_MAX):
        if _is_free(address.host, port):
            return f"{address.host}:{port}"
    return f"{address.host}:0"


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _report(stage: str, words: str, *, is_done: bool = True) -> None:
    """Print one stage of the demo, finished or left out."""
    mark = ("\x1b[32m\u2713\x1b[0m" if sys.stdout.isatty() else "ok") if is_done else "--"
    sys.stdout.write(f"{mark} {stage:<10}{words}\n")
    sys.stdout.flush()
