"""`zhumq cluster`: run a cluster on this machine, show the state of one, and rebalance it."""

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from zhumq.admin.cluster import describe_cluster
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    SecurityOption,
    parse_settings,
)
from zhumq.cli.output import headings, print_facts, print_json, print_table
from zhumq.cli.rebalance import rebalance

app = typer.Typer(
    no_args_is_help=True, help="Run a cluster on this machine, show its state, rebalance it."
)

app.command()(rebalance)

REPLICAS = 3  # or the number of brokers, if smaller
UNWELL_SHOWN_MAX = 20


@app.command()
def up(
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="How many brokers.")] = 3,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.")] = (
        Path("zhumq-cluster")
    ),
    port: Annotated[
        int,
        typer.Option(metavar="BASE", min=0, max=65_000, help="The first broker's port; 0: any."),
    ] = 9092,
    http_port: Annotated[
        int,
        typer.Option(metavar="BASE", min=0, max=65_000, help="Its /metrics; 0: any free ports."),
    ] = 9080,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of every broker."),
    ] = None,
) -> None:
    """Run ZooKeeper and brokers until Ctrl-C, for trying a cluster.

    Prints one line for each when it serves. Topics get three replicas; a message is acknowledged when
    two of them have it. Kill a broker to see a failover: the others continue.
    """
    # Imported here so that `zhumq --help`, which loads every command, stays quick.
    from zhumq.cli import local_cluster  # noqa: PLC0415
    from zhumq.cluster.dev_zookeeper import DevZookeeper  # noqa: PLC0415

    chosen = {
        "default.replication.factor": str(min(nodes, REPLICAS)),
        "min.insync.replicas": str(min(nodes, REPLICAS) // 2 + 1),
        **parse_settings(settings or []),
    }

    def interrupted(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    stops = (signal.SIGTERM, signal.SIGINT)
    previous = {each: signal.signal(each, interrupted) for each in stops}
    children: list[local_cluster.BrokerChild] = []
    ensemble: DevZookeeper | None = None
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        ensemble = DevZookeeper.start(data_dir / "zookeeper")
        _print_line(f"zookeeper ready {ensemble.connect}")
        for index in range(nodes):
            children.append(  # noqa: PERF401 (those that run are stopped if one does not start)
                local_cluster.start_broker(
                    index + 1,
                    data_dir,
                    zookeeper=ensemble.connect,
                    port=port and port + index,
                    http_port=http_port and http_port + index,
                    settings=chosen,
                )
            )
        for child in children:
            _print_line(local_cluster.ready_line(child))
        for child in local_cluster.ended(children):
            sys.stderr.write(
                f"broker {child.broker_id} ended with code {child.process.returncode};"
                f" to start it again: {child.restart_command}\n"
            )
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        for each in stops:
            signal.signal(each, signal.SIG_IGN)
        local_cluster.stop_brokers(children)
        if ensemble is not None:
            ensemble.stop()
        for each, handler in previous.items():
            signal.signal(each, handler)


@app.command()
def status(
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show the brokers, how many partitions each leads, and leaderless or underreplicated partitions."""
    state = asdict(describe_cluster(connect(bootstrap, security)))
    if as_json:
        print_json(state)
        return
    brokers, unwell = state.pop("brokers"), list(state.pop("unwell"))
    print_facts(state)
    columns = headings("broker address rack controller leads replicas")
    print_table(brokers, columns, empty="no broker is alive")
    if unwell:
        sys.stdout.write("\nwithout a leader, or with replicas that are not in sync:\n")
        # The worst first; a dead broker of a large cluster affects thousands of partitions.
        unwell.sort(key=lambda each: (each["leader"] is not None, len(each["in_sync"])))
        columns = headings("topic partition leader replicas in_sync")
        print_table(unwell[:UNWELL_SHOWN_MAX], columns, empty="")
        if len(unwell) > UNWELL_SHOWN_MAX:
            _print_line(f"... and {len(unwell) - UNWELL_SHOWN_MAX} more (--json shows all)")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
