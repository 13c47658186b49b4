"""What a connection may do and how much: the steps of every request between decoding and its handler."""

from collections.abc import Callable
from typing import Any, Protocol

from zhumq.broker.quotas import NoQuotas, Quotas
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.produce_codec import ProduceRun
from zhumq.security.acl import Operation, ResourceType

# Whether the sender of a request may do this with the resource of this name.
May = Callable[[Operation, ResourceType, str], bool]


def may_do_all(_operation: Operation, _type: ResourceType, _name: str) -> bool:
    """Without an authorizer, everything is permitted."""
    return True


class Authorization(Protocol):
    """Which requests are permitted, and which of their parts."""

    def may_produce(self, connection: ConnectionInfo, run: ProduceRun) -> bool:
        """For the fast path of Produce. A run that is not permitted goes to the handler, which refuses it."""

    def call(self, handler: Callable[[Any, Any], Any], context: Any, request: Any) -> Any:
        """Calls the handler with what is permitted of a request, and completes or reduces the response.

        Raises what refuses the request as a whole: a BrokerError for its response, or MalformedFrame to
        close the connection.
        """


class Access:
    """Authorizes requests if there is an authorization, and throttles those that are above their quotas.

    The dispatcher asks for every request of every connection, the fast path of Produce
    included, if there are rules to apply: decisions 0036 and 0045.
    """

    def __init__(
        self, authorization: Authorization | None = None, quotas: Quotas | None = None
    ) -> None:
        self.authorization = authorization
        self.quotas = quotas or NoQuotas()
