"""What a connection may do and how much: the steps of every request between decoding and its handler."""

from collections.abc import Collection
from typing import Any

from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey

NONE_DENIED: frozenset[str] = frozenset()


class Access:
    """Authorizes every request and throttles none.

    The dispatcher calls these methods for every request of every connection, the fast path of Produce
    included, if there are rules to apply. Decision 0036 says how authentication, ACLs and quotas fill them.
    """

    # Without rules the dispatcher saves these calls: a produce request alone is that short.
    has_acls = False
    has_quotas = False

    def authorize(
        self,
        connection: ConnectionInfo,  # noqa: ARG002
        api_key: ApiKey,  # noqa: ARG002
        request: Any,  # noqa: ARG002
    ) -> Collection[str]:
        """The names in the request that its principal may not use, which the handler refuses one by one.

        Raises what refuses the request as a whole: a BrokerError for its response, or MalformedFrame to
        close the connection, as for Produce, which has no such response. The request is a message, or a
        ProduceRun.
        """
        return NONE_DENIED

    def record(
        self, connection: ConnectionInfo, client_id: str | None, api_key: ApiKey, request_bytes: int
    ) -> None:
        """Counts requests that reach their handler against the quotas of their client, and sets the
        `throttle_ms` of the connection if it has used too much."""
