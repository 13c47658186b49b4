"""Who may read /metrics: users that may describe the cluster, where the HTTP listener asks for a login."""

from collections.abc import Awaitable, Callable
from typing import Final

from zhumq.broker.authentication import Authentication
from zhumq.broker.authorization import AclAuthorization
from zhumq.broker.http import Refused
from zhumq.broker.listener_config import ListenerConfig
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType
from zhumq.security.login import Login, NotAuthenticated

_ACTION: Final = "Metrics"  # its name in the audit log


class MetricsGuard:
    """Asks for a login, and for the right to describe the cluster if there is an authorizer."""

    def __init__(
        self,
        listener: str,
        log_in: Callable[[str, str], Awaitable[Login]],
        authorization: AclAuthorization | None,
    ) -> None:
        self._listener = listener
        self._log_in = log_in
        self._authorization = authorization

    async def check(self, header: str, host: str) -> None:
        """Raises Refused."""
        try:
            login = await self._log_in(header, host)
        except NotAuthenticated as reason:
            raise Refused("401 Unauthorized", str(reason)) from None
        if self._authorization is None:
            return
        caller = self._authorization.caller(self._listener, login.principal, host, _ACTION)
        if not caller.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            raise Refused("403 Forbidden", "this needs the right to describe the cluster")


def metrics_guard(
    config: ListenerConfig, authentication: Authentication, authorization: AclAuthorization | None
) -> MetricsGuard | None:
    """None where the HTTP listener asks for no login."""
    log_in = authentication.of_calls(config.name)
    return None if log_in is None else MetricsGuard(config.name, log_in, authorization)
