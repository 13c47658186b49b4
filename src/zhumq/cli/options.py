"""Options that commands share, `key=value` pairs, and the error of a failed command."""

from collections.abc import Iterable
from typing import Annotated

import typer

from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import ClientSecurity
from zhumq.model.errors import ZhumqError

CONFIG_VARIABLE = "ZHUMQ_CLIENT_CONFIG"
BOOTSTRAP_VARIABLE = "ZHUMQ_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_HTTP = "127.0.0.1:9080"
DEFAULT_DATA_DIR = "zhumq-data"

# The limits of the protocol's integers.
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=False,
        help="The address of a broker.",
    ),
]


class CommandFailed(ZhumqError):
    """The command failed; the message names the reason and what to do."""


def _read_security(path: str) -> ClientSecurity:
    try:
        return ClientSecurity.read(path)
    except SecurityInvalid as error:
        # A ValueError would have its message replaced.
        raise CommandFailed(f"--config: {error}") from None


# A file of Kafka's client settings, e.g. for security.protocol=SASL_SSL.
SecurityOption = Annotated[
    ClientSecurity | None,
    typer.Option(
        "--config",
        metavar="FILE.properties",
        envvar=CONFIG_VARIABLE,
        show_envvar=False,
        parser=_read_security,
        help="Kafka's client.properties with the security settings.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse the `key=value` pairs of repeated --set options."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandFailed(f"--set takes key=value, not {pair!r}")
        settings[key.strip()] = value.strip()
    return settings
