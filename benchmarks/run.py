"""`make bench`: measures zhumq and Apache Kafka in turn with the same clients; QUICK=1 is shorter."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import partitions, three_nodes, tls
from benchmarks.cases import Case, Sizes, cases, start_and_idle, topic_on
from benchmarks.kafka_peer import prepare_kafka
from benchmarks.loaders import (
    Figures,
    LoaderFailed,
    build_loaders,
    consume,
    one_record_requests,
    produce,
)
from benchmarks.push import measure_push
from benchmarks.report import Row, commit, machine, number, print_table, write_json
from benchmarks.server import BUILD, Measured, Prepared
from benchmarks.spark_cases import TITLE as SPARK_TITLE
from benchmarks.spark_cases import measure_spark
from benchmarks.zhumq_server import prepare_zhumq

PREPARE: dict[str, Callable[..., Prepared]] = {"zhumq": prepare_zhumq, "kafka": prepare_kafka}
WARM_MESSAGES = 500_000  # before the first measurement, so that Kafka's hot code is compiled
REPETITIONS = 3
QUICK_DIVISOR = 10
PIPE_COLUMNS = 140


def warm(server: Measured) -> None:
    """Run every kind of load once without measuring, also in a quick run: Kafka starts cold."""
    with topic_on(server, 1) as topic:
        produce(server, topic, partitions=1, count=WARM_MESSAGES, size=100, acks=1)
        produce(server, topic, partitions=1, count=WARM_MESSAGES // 2, size=1000, acks=-1)
        consume(server, topic, partitions=1, count=WARM_MESSAGES)
        one_record_requests(
            server, topic, connections=64, in_flight=16, count=WARM_MESSAGES // 5, acks=1
        )


def measure_starts(names: list[str], repetitions: int, console: Console) -> list[Row]:
    rows = [
        Row(name="start to the first acknowledged record", main="start_seconds"),
        Row(name="idle memory", main="idle_rss_mb"),
    ]  # fmt: skip
    for repetition in range(repetitions):
        for name in names:
            with tempfile.TemporaryDirectory(prefix="zhumq-bench-") as folder:
                prepared: Prepared = PREPARE[name](Path(folder))
                figures = start_and_idle(prepared)
            for row in rows:
                row.runs.setdefault(name, []).append(figures)
            print_figures(console, repetition, "start", name, figures, "start_seconds")
    return rows


def measure_cases(
    chosen: list[Case], servers: Sequence[Measured], repetitions: int, console: Console
) -> list[Row]:
    """Interleaved: every repetition measures each server before the next repetition begins."""
    rows = []
    for case in chosen:
        row = Row(
            name=case.name,
            main=case.main,
            also=case.also,
            floor_figure=case.floor_figure,
            floor=case.floor,
            notes=case.notes,
        )
        rows.append(row)
        for repetition in range(repetitions):
            # The order changes, so that neither server always has the cleaner page cache.
            for server in servers if repetition % 2 == 0 else reversed(servers):
                try:
                    figures = case.run(server)
                except LoaderFailed as error:
                    console.print(f"[red]{server.name}: {error}[/]")
                    continue
                row.runs.setdefault(server.name, []).append(figures)
                print_figures(console, repetition, case.name, server.name, figures, case.main)
    return rows


def print_figures(
    console: Console, repetition: int, case: str, server: str, figures: Figures, main: str
) -> None:
    cpu = ""
    if "server_cores" in figures:
        cpu = f", {figures['server_cores']:.2f} cores"
    console.print(
        f"  {repetition + 1} {case}: {server} {main} {number(figures[main])}{cpu}", style="dim"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a case's name")
    parser.add_argument("--servers", default="zhumq,kafka", help="zhumq, kafka or both")
    parser.add_argument("--before", type=Path, help="another checkout, measured instead of Kafka")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--divisor", type=int, help="divide what each case moves by this")
    parser.add_argument("--data-dir", type=Path, help="where the servers keep their data")
    parser.add_argument("--output", type=Path, default=BUILD / "bench")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    quick = os.environ.get("QUICK", "") not in ("", "0")
    # A table in a file or a pipe is not limited to 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
    began = datetime.now(UTC)
    load = list(os.getloadavg())
    names = arguments.servers.split(",")
    if arguments.before is not None:
        names = ["zhumq", "before"]
        earlier = {"tree": arguments.before.resolve(), "name": "before"}
        PREPARE["before"] = partial(prepare_zhumq, **earlier)
        three_nodes.CLUSTERS["before"] = partial(three_nodes.zhumq_cluster, **earlier)
    build_loaders()
    sizes = Sizes(divisor=arguments.divisor or (QUICK_DIVISOR if quick else 1))
    chosen = [case for case in cases(sizes) if arguments.only in case.name]
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = arguments.data_dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="zhumq-bench-"))
        )
        if arguments.only in "start to the first acknowledged record, idle memory":
            rows += measure_starts(names, arguments.repetitions, console)
        servers = []
        for name in names if chosen else []:
            (folder / name).mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(PREPARE[name](folder / name).start())
            console.print(f"{name} serves at {server.bootstrap}, pid {server.pid}", style="dim")
            warm(server)
            servers.append(server)
        rows += measure_cases(chosen, servers, arguments.repetitions, console)
        for server in servers:
            server.stop()  # The next parts need the machine, and start their own zhumq.
        parts = Parts(console)
        if arguments.only in partitions.NAME:
            rows += parts.measure(
                lambda: [partitions.measure_partitions(names, PREPARE, quick=quick)]
            )
        if encrypted := [case for case in tls.cases(sizes) if arguments.only in case.name]:
            rows += parts.measure(
                lambda: measure_tls(encrypted, names, folder, arguments.repetitions, console)
            )
        options = arguments.only, sizes, arguments.repetitions
        rows += parts.measure(lambda: measure_push(*options, folder / "push", console))
        if replicated := [case for case in three_nodes.cases(sizes) if arguments.only in case.name]:
            rows += parts.measure(
                lambda: measure_three_nodes(
                    replicated, names, folder, sizes, arguments.repetitions, console
                )
            )
        spark_rows = parts.measure(lambda: measure_spark(*options, folder / "spark", console))
    finish(rows, spark_rows, arguments.output, began=began, load=load, console=console, quick=quick)
    sys.exit(parts.exit_code)


class Parts:
    """Measures one part after the other; a part that fails loses only its own figures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.exit_code = 0

    def measure(self, part: Callable[[], list[Row]]) -> list[Row]:
        try:
            return part()
        except Exception:  # is printed, and the other parts go on
            self._console.print_exception()
            self.exit_code = 1
            return []


def measure_tls(
    chosen: list[Case], names: Sequence[str], folder: Path, repetitions: int, console: Console
) -> list[Row]:
    with tls.servers(names, folder, PREPARE) as servers:
        for server in servers:
            with topic_on(server, 1) as topic:
                produce(server, topic, partitions=1, count=WARM_MESSAGES, size=1000, acks=1)
                consume(server, topic, partitions=1, count=WARM_MESSAGES)
        return measure_cases(chosen, servers, repetitions, console)


def measure_three_nodes(
    chosen: list[Case],
    names: Sequence[str],
    folder: Path,
    sizes: Sizes,
    repetitions: int,
    console: Console,
) -> list[Row]:
    with three_nodes.clusters(names, folder, sizes, console) as clusters:
        return measure_cases(chosen, clusters, repetitions, console)


def finish(
    rows: list[Row],
    spark_rows: list[Row],
    output: Path,
    *,
    began: datetime,
    load: list[float],
    console: Console,
    quick: bool,
) -> None:
    from benchmarks.plot import draw  # here, since matplotlib is slow to import

    if rows:
        print_table(rows, console)
    if spark_rows:
        print_table(spark_rows, console, title=SPARK_TITLE, peer="connector")
    rows = [*rows, *spark_rows]
    output.mkdir(parents=True, exist_ok=True)
    stem = f"bench-{began:%Y%m%dT%H%M%S}"
    command = ("QUICK=1 " if quick else "") + shlex.join(
        ["python", "-m", "benchmarks.run", *sys.argv[1:]]
    )
    write_json(rows, output / f"{stem}.json", command=command, began=began.isoformat(), load=load)
    caption = f"{commit()}, {machine()['cores']} cores, {began:%Y-%m-%d %H:%M} UTC, {command}"
    draw(rows, output / f"{stem}.png", caption=caption)
    for kind in ("json", "png"):
        shutil.copyfile(output / f"{stem}.{kind}", output / f"latest.{kind}")
    took = (datetime.now(UTC) - began).total_seconds()
    console.print(
        f"{output / stem}.json and .png, in {took:.0f} s, load average before {load[0]:.2f}"
    )


if __name__ == "__main__":
    main()
