"""`zhumq start`: run a broker until SIGTERM or Ctrl-C."""

import gc
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from zhumq.cli.log_options import (
    BytesOption,
    FileOption,
    FilesOption,
    FormatOption,
    LevelOption,
    LogFormat,
    LogLevel,
    LogOptions,
)
from zhumq.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_HTTP, CommandFailed, parse_settings
from zhumq.cli.passwords import password_of
from zhumq.model.password import Password
from zhumq.model.security_protocol import SecurityProtocol

app = typer.Typer()

ADMIN_PASSWORD_VARIABLE = "ZHUMQ_ADMIN_PASSWORD"  # noqa: S105 (the name of a variable)


@app.command()
def start(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The listener for Kafka clients; port 0: any; no host: every interface. Also NAME://HOST:PORT,... as the setting listeners.",
            show_default=DEFAULT_BOOTSTRAP,
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The listener for push consumers, or `off`; default: port 9094, or any free one if"
            " --listen is not on its default port.",
        ),
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The listener for /healthz, /readyz and /metrics; port 0: any.",
        ),
    ] = DEFAULT_HTTP,
    web: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also serve the console and the REST API, by a process of its own, which ends with the broker.",
        ),
    ] = None,
    web_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.properties",
            help="With --web: how the API reaches a secured listener, as --config of `zhumq web`.",
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.")] = Path(
        "zhumq-data"
    ),
    broker_id: Annotated[int, typer.Option(metavar="N", help="The id of this broker.")] = 0,
    rack: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rack or availability zone.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,.../PATH",
            help="The ZooKeeper ensemble of the cluster; without it: a single node.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="A file with settings.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as num.partitions=4."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Let other machines connect to listeners without encryption or authentication.",
        ),
    ] = False,
    admin_user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A user who may do everything, and is created if it does not exist.",
        ),
    ] = None,
    admin_password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"The password of a new --admin-user; or the variable {ADMIN_PASSWORD_VARIABLE}.",
        ),
    ] = None,
    log_level: LevelOption = LogLevel.INFO,
    log_format: FormatOption = LogFormat.TEXT,
    log_file: FileOption = None,
    log_max_bytes: BytesOption = None,
    log_files: FilesOption = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    It prints one line, `zhumq ready ...`, when it serves. Its log goes to stderr, or to --log-file.
    """
    # Imports make no garbage, and garbage collection takes a fifth of the start time.
    gc.disable()
    # Imported here so that `zhumq --help`, which loads every command, does not load a broker.
    from zhumq.broker.config import BrokerConfig  # noqa: PLC0415
    from zhumq.broker.serve import Companion, serve  # noqa: PLC0415
    from zhumq.cli.web_child import web_child  # noqa: PLC0415

    log = LogOptions.of(
        log_level, log_format, file=log_file, bytes_max=log_max_bytes, files=log_files
    )
    loaded = BrokerConfig.load(
        config_file=config,
        settings=parse_settings(settings or []),
        listen=listen,
        http=http,
        data_dir=data_dir,
        broker_id=broker_id,
        rack=rack,
        insecure=insecure,
        zookeeper=zookeeper,
        push=push,
        admin_user=admin_user,
        admin_password=_admin_password(admin_password_file),
    )
    log.set_up({"broker": broker_id})
    companion: Companion | None = None
    if web is not None:
        # The process beside the broker is another program at once: gRPC need not prepare for the fork, nor warn of it.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        if web_config is None and loaded.listeners[0].protocol is not SecurityProtocol.PLAINTEXT:
            raise CommandFailed(
                f"--web needs --web-config: the listener is {loaded.listeners[0].protocol}"
            )
        companion = partial(
            web_child,
            listen=web,
            config=web_config,
            insecure=insecure,
            log=log.of_child("web").arguments(),
        )
    raise typer.Exit(serve(loaded, companion))


def _admin_password(file: Path | None) -> Password | None:
    reference = None
    if file is None and ADMIN_PASSWORD_VARIABLE in os.environ:
        reference = f"${{env:{ADMIN_PASSWORD_VARIABLE}}}"
    return password_of(file=file, reference=reference, option="--admin-password")
