"""The connection to the ZooKeeper ensemble, as its client reports it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import ConnectionLost, CredentialsRefused, LinkState, SessionOver

RETRY_SECONDS: Final = 0.1
Found = TypeVar("Found")
LinkWatcher = Callable[[LinkState, int], None]


class EnsembleLink:
    """Knows from the first connection on whether there is one, and in which session."""

    def __init__(self, connect_ms_max: int) -> None:
        # How long a start or a registration waits for an ensemble that does not answer.
        self._connect_ms_max = connect_ms_max
        self._connected = asyncio.Event()
        self._newest: tuple[LinkState, int] | None = None
        self._watchers: list[LinkWatcher] = []

    def changed(self, link: LinkState, session_id: int) -> None:
        """The client connected or lost its connection, or its session expired."""
        if link is LinkState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        self._newest = (link, session_id)
        for watcher in self._watchers:
            watcher(link, session_id)

    def watch(self, watcher: LinkWatcher) -> None:
        """Call the watcher with the newest state, and with every later one."""
        self._watchers.append(watcher)
        if self._newest is not None:
            watcher(*self._newest)

    async def wait_until_connected(self) -> None:
        await self._connected.wait()

    async def retry_until_answered(
        self, attempt: Callable[[], Awaitable[Found]], what: str
    ) -> Found:
        """Retry through lost connections and sessions: they do not end the start of a broker.

        Raises StoreUnusable if the ensemble does not answer within the configured time.
        """
        while True:
            try:
                return await attempt()
            except CredentialsRefused:
                raise  # The next attempt would be refused, too.
            except (ConnectionLost, SessionOver):
                pass
            try:
                async with asyncio.timeout(self._connect_ms_max / 1_000):
                    await self._connected.wait()
            except TimeoutError:
                raise StoreUnusable(
                    f"ZooKeeper stopped answering for {self._connect_ms_max / 1_000:g} s while"
                    f" {what}: check the ensemble"
                ) from None
            await asyncio.sleep(RETRY_SECONDS)
