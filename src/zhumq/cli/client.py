"""Connections of the commands to the brokers: settings, and a check that one answers."""

from typing import Any, Final

from zhumq.admin import reachability
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.cli.command_end import closed_at_end
from zhumq.cli.options import CommandFailed
from zhumq.client.errors import SecurityFailed
from zhumq.client.routes import quiet_settings
from zhumq.client.security import ClientSecurity, as_security

CLIENT_ID: Final = "zhumq-cli"


def client_settings(bootstrap: str, security: ClientSecurity | None = None) -> dict[str, Any]:
    """librdkafka's settings for a client that prints nothing itself."""
    return quiet_settings(bootstrap, as_security(security)) | {"client.id": CLIENT_ID}


def connect(bootstrap: str, security: ClientSecurity | None = None) -> ClusterConnection:
    """A connection that is closed at the end of the command. Raises CommandFailed if no broker answers."""
    check_reachable(bootstrap, security)
    return closed_at_end(ClusterConnection(bootstrap, client_id=CLIENT_ID, security=security))


def check_reachable(
    bootstrap: str,
    security: ClientSecurity | None = None,
    *,
    seconds: float = reachability.ANSWER_SECONDS_MAX,
) -> None:
    """Raise CommandFailed soon if no broker answers, or none with these security settings."""
    try:
        reachability.check_reachable(bootstrap, seconds=seconds, security=as_security(security))
    except SecurityFailed as error:
        raise CommandFailed(f"cannot connect to {bootstrap}: {error} (see --config)") from None
    except Refused as error:
        raise CommandFailed(f"--{error}") from None
    except Unavailable as error:
        raise CommandFailed(f"{error}, or name another with --bootstrap HOST:PORT") from None
