"""Whether this process can serve: a broker answers it. Programs may ask as often as they like."""

import asyncio
import time
from typing import Final

from zhumq.admin.reachability import check_answers
from zhumq.client.errors import ClientError
from zhumq.client.security import ClientSecurity
from zhumq.web.problems import RequestRefused
from zhumq.web.workers import Workers

FRESH_SECONDS: Final = 1.0  # An answer is given to all who ask in this time.
ANSWER_SECONDS_MAX: Final = 3.0


class Readiness:
    """Asks the brokers without credentials, as this process has none of its own."""

    def __init__(self, bootstrap: str, security: ClientSecurity, workers: Workers) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._workers = workers
        self._asking = asyncio.Lock()
        self._asked_at: float | None = None
        self._obstacle: str | None = None

    async def obstacle(self) -> str | None:
        """Why no request could be served now, in one line; None if a broker answers."""
        async with self._asking:
            now = time.monotonic()
            if self._asked_at is None or now - self._asked_at >= FRESH_SECONDS:
                self._obstacle = await self._ask()
                self._asked_at = time.monotonic()
            return self._obstacle

    async def _ask(self) -> str | None:
        def ask() -> None:
            check_answers(self._bootstrap, security=self._security, seconds=ANSWER_SECONDS_MAX)

        try:
            await self._workers.run(ask)
        except (ClientError, RequestRefused) as error:
            return str(error)
        return None
