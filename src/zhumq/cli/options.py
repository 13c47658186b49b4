"""The words that commands share: options, `key=value` pairs, and the way to fail in one line."""

from collections.abc import Iterable
from typing import Annotated

import typer

from zhumq.model.errors import ZhumqError

BOOTSTRAP_VARIABLE = "ZHUMQ_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_HTTP = "127.0.0.1:9080"
DEFAULT_DATA_DIR = "zhumq-data"

# What the protocol has room for.
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=False,
        help="Where a broker listens.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class CommandFailed(ZhumqError):
    """The command could not do what it was asked; the message says why and what to do."""


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """The `key=value` words of repeated --set options."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandFailed(f"--set wants key=value, not {pair!r}")
        settings[key.strip()] = value.strip()
    return settings
