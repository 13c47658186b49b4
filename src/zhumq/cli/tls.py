"""`zhumq tls`: certificates for trying TLS."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zhumq.cli.dev_certificates import FILE_MODE, DevCertificates, make_dev_certificates

app = typer.Typer(no_args_is_help=True)

LISTENER: Final = "SSL://127.0.0.1:9093"
DEFAULT_DAYS: Final = 30


@app.callback()
def tls() -> None:
    """Certificates for trying TLS."""


@app.command()
def dev(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")] = Path(
        "zhumq-tls"
    ),
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="One more name or address of the broker."),
    ] = None,
    client: Annotated[str, typer.Option(metavar="NAME", help="The user of the client.")] = "client",
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=825, help="How long they are valid.")
    ] = DEFAULT_DAYS,
) -> None:
    """Make a CA, a certificate for a broker and one for a client, and settings for both.

    For trying TLS, not for production: the key of the CA is in the folder as well.
    """
    made = make_dev_certificates(folder, client=client, more_hosts=host or (), days=days)
    broker, properties = _write_settings(made)
    sys.stdout.write(
        f"{made.folder}: a CA, a broker ({', '.join(made.hosts)}) and a client (User:{made.user})\n"
        "next:\n"
        f"  zhumq start --config {shlex.quote(str(broker))}\n"
        f"  zhumq topic list --bootstrap localhost:9093 --config {shlex.quote(str(properties))}\n"
        f"Kafka's tools take {properties.name} as well; librdkafka takes ca.crt, client.crt and client.key."
        " The password of the PKCS#12 stores is in stores.password.\n"
    )


def _write_settings(made: DevCertificates) -> tuple[Path, Path]:
    broker, properties = made.folder / "broker.toml", made.folder / "client.properties"
    for path, lines in (
        (
            broker,
            (
                "# For trying TLS. Clients show a certificate, so no --insecure is needed on other addresses.",
                f'listeners = "{LISTENER}"',
                f"ssl.keystore.location = {json.dumps(str(made.broker))}",
                f"ssl.truststore.location = {json.dumps(str(made.authority))}",
                'ssl.client.auth = "required"',
            ),
        ),
        (
            properties,
            (
                "security.protocol=SSL",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={made.authority}",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={made.client}",
            ),
        ),
    ):
        path.touch(mode=FILE_MODE, exist_ok=False)
        path.write_text("\n".join((*lines, "")))
    return broker, properties
