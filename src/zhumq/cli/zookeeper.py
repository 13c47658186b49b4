"""`zhumq zookeeper`: a real ZooKeeper on this machine, for development."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from zhumq.cli.options import CommandFailed

app = typer.Typer(no_args_is_help=True)

DEFAULT_PORT = 2181


@app.callback()
def zookeeper() -> None:
    """A real ZooKeeper on this machine, for development."""


@app.command()
def start(
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=7, help="How many servers.")] = 1,
    port: Annotated[
        int,
        typer.Option(
            metavar="BASE", min=0, max=65_535, help="The first server's port; 0: any free ones."
        ),
    ] = DEFAULT_PORT,
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The data directory of the servers.")
    ] = (Path("zookeeper-data")),
) -> None:
    """Run a ZooKeeper ensemble until SIGTERM or Ctrl-C.

    It prints one line, `zookeeper ready HOST:PORT,...`, when every server serves. The servers come
    with PySpark; they need Java.
    """
    # Imported here so that `zhumq --help`, which loads every command, stays quick.
    from zhumq.cluster.dev_zookeeper import DevZookeeper  # noqa: PLC0415

    # Set before the first server starts, so that a stop during the start leaves no server running.
    stops = (signal.SIGTERM, signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = {each: signal.signal(each, interrupted) for each in stops}
    try:
        ensemble = DevZookeeper.start(data_dir, nodes=nodes, base_port=port)
        try:
            sys.stdout.write(f"zookeeper ready {ensemble.connect}\n")
            sys.stdout.flush()
            ended = ensemble.wait_until_one_ends()
            raise CommandFailed(
                f"ZooKeeper on {ended.address} has ended; see its log in {ended.folder}"
            )
        finally:
            for each in stops:
                signal.signal(each, signal.SIG_IGN)
            ensemble.stop()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
