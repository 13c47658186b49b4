"""A thread that reads from the brokers again and again, so that the screen never waits for one."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from textual.message import Message

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.reachability import check_reachable
from zhumq.client.errors import ClientError
from zhumq.client.security import ClientSecurity, as_security

CLIENT_ID: Final = "zhumq-ui"
# Soon: what is shown is old meanwhile, and the next refresh tries again.
RETRY_SECONDS: Final = 3.0

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers to look at, and how to reach them."""

    bootstrap: str
    security: ClientSecurity | None = None


class Read(Message, Generic[Facts]):
    """What was read."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        super().__init__()


class Unread(Message):
    """Nothing could be read, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__()


class Broken(Message):
    """The reading has a bug: the program ends with this error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__()


class Reader(Generic[Facts]):
    """Reads in a daemon thread with a connection of its own, from `start` to `stop`, and posts what it has read."""

    def __init__(
        self,
        brokers: Brokers,
        read: Callable[[ClusterConnection], Facts],
        post: Callable[[Message], object],
        *,
        seconds: float,
    ) -> None:
        self._brokers = brokers
        self._read = read
        self._post = post
        self._seconds = seconds
        self._stopping = threading.Event()
        self._due = threading.Event()
        # A daemon: a broker that does not answer must not delay the end of the program.
        self._thread = threading.Thread(target=self._run, name="zhumq-ui-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no more reading. What is being read is not posted."""
        self._stopping.set()
        self._due.set()

    def refresh(self) -> None:
        """Read at once."""
        self._due.set()

    def _run(self) -> None:
        with ClusterConnection(
            self._brokers.bootstrap,
            client_id=CLIENT_ID,
            security=self._brokers.security,
            retry_seconds=RETRY_SECONDS,
        ) as connection:
            while not self._stopping.is_set():
                self._due.clear()
                message = self._try(connection)
                if self._stopping.is_set():
                    return
                with contextlib.suppress(RuntimeError):  # The event loop has ended meanwhile.
                    self._post(message)
                self._due.wait(self._seconds)

    def _try(self, connection: ClusterConnection) -> Message:
        try:
            # Says within seconds that there is no broker, where librdkafka would try for long.
            check_reachable(self._brokers.bootstrap, security=as_security(self._brokers.security))
            return Read(self._read(connection))
        except ClientError as error:
            return Unread(str(error))
        except Exception as error:
            return Broken(error)
