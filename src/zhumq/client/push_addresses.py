"""The push listeners that a consumer may connect to, looked up again when a connection is lost."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Container
from typing import Final, TypeVar

from zhumq.client.errors import ClientError
from zhumq.client.routes import find_push_addresses, parse_addresses
from zhumq.client.security import ClientSecurity

REFRESH_SECONDS_MIN: Final = 1.0  # between two look-ups: many streams are lost at once

Result = TypeVar("Result")


class PushAddresses:
    """The given addresses, or those that the brokers behind a Kafka address advertise."""

    def __init__(self, bootstrap: str, given: str | None, security: ClientSecurity) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._given = given
        self._by_broker: dict[int, str] = {}
        self._refreshing = False
        self.known: list[str] = [] if given is None else parse_addresses(given)

    async def look_up(self) -> None:
        """Ask the brokers, unless addresses were given. Raises ClientError."""
        if self._given is None:
            self._by_broker = await _in_daemon_thread(
                lambda: find_push_addresses(self._bootstrap, self._security)
            )
            self.known = list(self._by_broker.values())

    async def refresh(self) -> None:
        """Look up again, one look-up at a time. If no broker answers, the known addresses stay."""
        if self._refreshing:
            return
        self._refreshing = True
        try:
            await self.look_up()
            await asyncio.sleep(REFRESH_SECONDS_MIN)
        except ClientError:
            pass  # The streams keep reconnecting, and each failure looks up again.
        finally:
            self._refreshing = False

    def after(self, address: str, *, taken: Container[str]) -> str:
        """The next address to try: one without a stream."""
        known = self.known
        place = known.index(address) + 1 if address in known else 0
        for each in (*known[place:], *known[:place]):
            if each != address and each not in taken:
                return each
        return address

    def of_broker(self, broker_id: int, otherwise: str) -> str:
        """The current address of a broker."""
        return self._by_broker.get(broker_id, otherwise)


async def _in_daemon_thread(work: Callable[[], Result]) -> Result:
    """Run a blocking call in a daemon thread. A program that ends meanwhile does not wait for it, as it
    would for a thread of asyncio's executor."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # The loop is closed: the result is not needed any more.
            loop.call_soon_threadsafe(lambda: None if future.done() else how())

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failure = error
            settle(lambda: future.set_exception(failure))
        else:
            settle(lambda: future.set_result(result))

    threading.Thread(target=run, name="zhumq-push-addresses", daemon=True).start()
    return await future
