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
    ssl_keystore: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Key and certificate of the servers, PEM: TLS on one more port each.",
        ),
    ] = None,
    ssl_truststore: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The CA of clients that show certificates, PEM."),
    ] = None,
) -> None:
    """Run a ZooKeeper ensemble until SIGTERM or Ctrl-C.

    It prints one line, `zookeeper ready HOST:PORT,...`, when every server serves; with --ssl-keystore
    ` tls=HOST:PORT,...` is behind it. The servers come with PySpark; they need Java.
    """
    # Imported here so that `zhumq --help`, which loads every command, stays quick.
    from zhumq.cluster.dev_zookeeper import DevSecurity, DevZookeeper  # noqa: PLC0415

    if ssl_truststore is not None and ssl_keystore is None:
        raise CommandFailed("--ssl-truststore needs --ssl-keystore: there is no TLS without it")
    for option, file in (("--ssl-keystore", ssl_keystore), ("--ssl-truststore", ssl_truststore)):
        if file is not None and not file.is_file():
            raise CommandFailed(f"{option} {file}: there is no such file")
    security = DevSecurity(
        keystore=None if ssl_keystore is None else ssl_keystore.resolve(),
        truststore=None if ssl_truststore is None else ssl_truststore.resolve(),
    )

    is_ready = is_stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopping
        del number, frame
        is_stopping = True
        # Later nothing is raised: in the middle of a wait for a process, that process could never be waited for again.
        if not is_ready:
            raise KeyboardInterrupt

    # Set before the first server starts, so that a stop during the start leaves no server running.
    previous = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        ensemble = DevZookeeper.start(data_dir, nodes=nodes, base_port=port, security=security)
        try:
            is_ready = True
            tls = "" if ssl_keystore is None else f" tls={ensemble.secure_connect}"
            sys.stdout.write(f"zookeeper ready {ensemble.connect}{tls}\n")
            sys.stdout.flush()
            ended = ensemble.wait_until_one_ends(lambda: is_stopping)
            if ended is not None:
                raise CommandFailed(
                    f"ZooKeeper on {ended.address} has ended; see its log in {ended.folder}"
                )
        finally:
            ensemble.stop()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
