"""Connections of the commands to the brokers: settings, and a check that one answers."""

from typing import Any, Final

from zhumq.admin import reachability
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.cli.options import CommandFailed
from zhumq.client.routes import quiet_settings

CLIENT_ID: Final = "zhumq-cli"


def client_settings(bootstrap: str) -> dict[str, Any]:
    """librdkafka's settings for a client that prints nothing itself."""
    return quiet_settings(bootstrap, **{"client.id": CLIENT_ID})


def connect(bootstrap: str) -> ClusterConnection:
    """A connection for operations of `zhumq.admin`. Raises CommandFailed if no broker answers."""
    check_reachable(bootstrap)
    return ClusterConnection(bootstrap, client_id=CLIENT_ID)


def check_reachable(bootstrap: str, *, seconds: float = reachability.ANSWER_SECONDS_MAX) -> None:
    """Raise CommandFailed soon if no broker answers."""
    try:
        reachability.check_reachable(bootstrap, seconds=seconds)
    except Refused as error:
        raise CommandFailed(f"--{error}") from None
    except Unavailable as error:
        raise CommandFailed(f"{error}, or name another with --bootstrap HOST:PORT") from None
