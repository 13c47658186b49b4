"""`zhumq web`: serve the console and the REST API, which ask the brokers with the credentials of its callers."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

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
from zhumq.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, CommandFailed
from zhumq.client.errors import SecurityInvalid
from zhumq.model.address import Address, parse_listener

if TYPE_CHECKING:
    from zhumq.web.server import Tls

app = typer.Typer()

DEFAULT_LISTEN: Final = "127.0.0.1:8080"


@app.command()
def web(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve; port 0: any.")
    ] = DEFAULT_LISTEN,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE.properties",
            help="How to reach a secured broker: security.protocol, sasl.mechanism, ssl.truststore.*;"
            " no credentials, callers bring theirs.",
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The push listeners, instead of those that brokers name."
        ),
    ] = None,
    host_names: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name", metavar="NAME", help="A name that this server is reached by; repeatable."
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE.pem", help="Serve HTTPS with this certificate."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE.pem", help="The certificate's key.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines connect without TLS.")
    ] = False,
    log_level: LevelOption = LogLevel.INFO,
    log_format: FormatOption = LogFormat.TEXT,
    log_file: FileOption = None,
    log_max_bytes: BytesOption = None,
    log_files: FilesOption = None,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve the console and the REST API until SIGTERM or Ctrl-C.

    It prints `zhumq web ready url=...` when it serves: the address of the console. docs/rest.md has the requests.
    """
    try:
        # Imported here: Starlette and uvicorn are of the extra `console`.
        from zhumq.web.app import WebConfig  # noqa: PLC0415
        from zhumq.web.credentials import WITHOUT_SASL, BrokerSecurity  # noqa: PLC0415
        from zhumq.web.server import serve  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise CommandFailed(
            f"`zhumq web` needs {missing.name}: pip install 'zhumq[console]'"
        ) from None
    log = LogOptions.of(
        log_level, log_format, file=log_file, bytes_max=log_max_bytes, files=log_files
    )
    address = _address(listen)
    tls = _tls(certificate, key)
    if tls is None and not address.is_loopback and not insecure:
        raise CommandFailed(
            f"{address} is reached by other machines, and passwords would be sent in the clear: give"
            " --tls-cert and --tls-key, or --insecure"
        )
    try:
        security = BrokerSecurity.read(config) if config is not None else WITHOUT_SASL
    except SecurityInvalid as error:
        raise CommandFailed(f"--config: {error}") from None
    log.set_up({"program": "web"})
    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()
    raise typer.Exit(
        serve(
            WebConfig(
                bootstrap=bootstrap,
                push=push,
                security=security,
                host_names=tuple(host_names or ()),
            ),
            address,
            tls,
        )
    )


def _address(text: str) -> Address:
    try:
        return parse_listener(text).to_bind()
    except ValueError as error:
        raise CommandFailed(f"--listen {error}") from None


def _tls(certificate: Path | None, key: Path | None) -> "Tls | None":
    from zhumq.web.server import Tls  # noqa: PLC0415 (of the extra `console`)

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise CommandFailed("--tls-cert and --tls-key go together")
    for path in (certificate, key):
        if not path.is_file():
            raise CommandFailed(f"there is no file {path}")
    return Tls(certificate=str(certificate), key=str(key))


def _stop_when_stdin_closes() -> None:
    """A broker that is killed stops this process with it: the kernel closes its end of the pipe."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
