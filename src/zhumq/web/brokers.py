"""Connections to the brokers, each with the credentials of one caller; idle ones are kept for the next request."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.encoding import MessageEncoder
from zhumq.admin.errors import Unavailable
from zhumq.admin.messages import MessageSender
from zhumq.admin.reachability import check_reachable
from zhumq.admin.schema_log import SchemaLink
from zhumq.admin.schema_store import SchemaStore
from zhumq.client.errors import SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.client.waiting import Waiting

CLIENT_ID: Final = "zhumq-web"
IDLE_MAX: Final = 16  # connections of all callers that wait for a request
# The credentials of a connection are checked again after this time, as a user may have been deleted.
AGE_SECONDS_MAX: Final = 300.0
REACH_SECONDS_MAX: Final = 3.0
RETRY_SECONDS: Final = (
    8.0  # while a leader changes; a caller of HTTP is answered sooner than one of a command
)
WAITING_MAX: Final = 16  # requests that wait for new messages, of all callers


class Brokers:
    """The brokers as one caller may see them. One request uses it at a time."""

    def __init__(
        self,
        bootstrap: str,
        security: ClientSecurity,
        push: str | None,
        waiting_slots: threading.BoundedSemaphore,
        schemas: SchemaStore,
    ) -> None:
        self.connection = ClusterConnection(
            bootstrap,
            push=push,
            client_id=CLIENT_ID,
            waiting=Waiting(bootstrap, security),
            security=security,
            retry_seconds=RETRY_SECONDS,
            asks_often=True,
        )
        self.waiting_slots = waiting_slots
        self.schemas = schemas  # of all callers: each reads it with its own link
        self.opened_at = time.monotonic()
        self._sender: MessageSender | None = None
        self._schema_link: SchemaLink | None = None

    @property
    def sender(self) -> MessageSender:
        if self._sender is None:
            self._sender = MessageSender(self.connection)
        return self._sender

    @property
    def schema_link(self) -> SchemaLink:
        if self._schema_link is None:
            self._schema_link = SchemaLink(self.connection, client_id=CLIENT_ID)
        return self._schema_link

    def encoder(self) -> MessageEncoder:
        """For the messages of one request."""
        return MessageEncoder(self.schemas, self.schema_link)

    def close(self) -> None:
        if self._schema_link is not None:
            self._schema_link.close()
        self.connection.close()


class BrokerPool:
    """Lends connections to the threads of requests."""

    def __init__(
        self,
        bootstrap: str,
        *,
        push: str | None = None,
        age_seconds_max: float = AGE_SECONDS_MAX,
    ) -> None:
        self._bootstrap = bootstrap
        self._push = push
        self._age_seconds_max = age_seconds_max
        self._waiting_slots = threading.BoundedSemaphore(WAITING_MAX)
        self._schemas = SchemaStore()
        self._lock = threading.Lock()
        self._idle: list[tuple[ClientSecurity, Brokers]] = []  # the longest idle first
        self._is_closed = False

    @contextlib.contextmanager
    def lend(self, security: ClientSecurity) -> Iterator[Brokers]:
        """A connection with these credentials. Blocks while a new one is checked.

        Raises Unavailable soon if no broker answers, and AuthenticationFailed if they refuse the credentials.
        """
        brokers = self._take(security) or self._open(security)
        try:
            yield brokers
        except (Unavailable, SecurityFailed):
            # The next request begins with the check, which does not wait for as long as this one did.
            brokers.close()
            raise
        except BaseException:
            self._put(security, brokers)
            raise
        else:
            self._put(security, brokers)

    def check(self, security: ClientSecurity) -> None:
        """Raise AuthenticationFailed if the brokers refuse the credentials, Unavailable if none answers."""
        check_reachable(self._bootstrap, seconds=REACH_SECONDS_MAX, security=security)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._is_closed = True
        for _, brokers in idle:
            brokers.close()
        self._schemas.close()

    def _open(self, security: ClientSecurity) -> Brokers:
        self.check(security)
        return Brokers(self._bootstrap, security, self._push, self._waiting_slots, self._schemas)

    def _take(self, security: ClientSecurity) -> Brokers | None:
        oldest = time.monotonic() - self._age_seconds_max
        with self._lock:
            aged = [brokers for _, brokers in self._idle if brokers.opened_at < oldest]
            self._idle = [each for each in self._idle if each[1].opened_at >= oldest]
            found = next((each for each in reversed(self._idle) if each[0] == security), None)
            if found is not None:
                self._idle.remove(found)
        for brokers in aged:
            brokers.close()
        return found[1] if found is not None else None

    def _put(self, security: ClientSecurity, brokers: Brokers) -> None:
        with self._lock:
            self._idle.append((security, brokers))
            # A request may end after the program began to.
            is_over = len(self._idle) > IDLE_MAX or self._is_closed
            over = self._idle.pop(0)[1] if is_over else None
        if over is not None:
            over.close()
