"""Sends requests that Kafka's client libraries do not offer, on a separate connection."""

from types import TracebackType
from typing import Any, Final, Self

from zhumq.cli.client import REACH_TIMEOUT_SECONDS, addresses
from zhumq.cli.options import CommandFailed
from zhumq.client.wire import Connection
from zhumq.model.errors import MalformedFrame
from zhumq.protocol.api import ApiKey
from zhumq.protocol.schema import Message

REQUEST_TIMEOUT_SECONDS: Final = 15.0  # for the answer to one request


class BrokerConnection:
    """Sends one request at a time to one broker. Reconnects to any of the brokers."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def ask(self, key: ApiKey, body: Message, version: int | None = None) -> Any:
        """Send a request, by default in its newest version, and return the answer. Raises CommandFailed."""
        try:
            if self._connection is None:
                self._connection = Connection.open(
                    addresses(self._bootstrap),
                    client_id="zhumq-cli",
                    connect_seconds=REACH_TIMEOUT_SECONDS,
                    request_seconds=REQUEST_TIMEOUT_SECONDS,
                )
            return self._connection.ask(key, body, version)
        except (OSError, MalformedFrame) as reason:
            self._close()
            raise CommandFailed(
                f"the broker at {self._bootstrap} did not answer"
                f" {key.name.lower().replace('_', ' ')}: {reason}"
            ) from reason

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
