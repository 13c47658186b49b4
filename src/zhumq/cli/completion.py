"""Shell completion of topic and group names; empty if no broker answers at once."""

import os
from typing import Any, Final

import typer

from zhumq.cli.options import (
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    CommandFailed,
)
from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import ClientSecurity

SECONDS_MAX: Final = 1.0  # a person waits for the completion
NAMES_MAX: Final = 1_000


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with the given text; internal ones only after the first character."""
    admin = _admin(context)
    if admin is None:
        return []
    names = _names(lambda: admin.list_topics(timeout=SECONDS_MAX).topics, incomplete)
    return [name for name in names if incomplete or not name.startswith("__")]


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin with the given text."""
    admin = _admin(context)
    if admin is None:
        return []

    def listed() -> list[str]:
        found = admin.list_consumer_groups(request_timeout=SECONDS_MAX).result()
        return [each.group_id for each in found.valid]

    return _names(listed, incomplete)


def _admin(context: typer.Context) -> Any:
    """A client of the broker that the command line names; None: no broker answers."""
    # Imported here: a command that only runs does not need the client for completion.
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    from zhumq.cli.client import check_reachable, client_settings  # noqa: PLC0415

    given = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
    bootstrap = given or DEFAULT_BOOTSTRAP
    security = context.params.get("security")
    try:
        if security is None and CONFIG_VARIABLE in os.environ:
            security = ClientSecurity.read(os.environ[CONFIG_VARIABLE])
        check_reachable(bootstrap, security, seconds=SECONDS_MAX)
        return AdminClient(client_settings(bootstrap, security))
    except (CommandFailed, SecurityInvalid):
        return None


def _names(ask: Any, incomplete: str) -> list[str]:
    from confluent_kafka import KafkaException  # noqa: PLC0415

    try:
        names = sorted(ask())
    except KafkaException:
        return []
    return [name for name in names if name.startswith(incomplete)][:NAMES_MAX]
