"""The threads that requests block in: a bounded number at work, a bounded number waiting, and a deadline for each."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar

from zhumq.web.problems import RequestRefused, too_busy

THREADS_MAX: Final = 24
REQUESTS_MAX: Final = 64  # in threads, or waiting for one
REQUEST_SECONDS_MAX: Final = 40.0  # longer than an operation waits for brokers that do not answer

Result = TypeVar("Result")


class Workers:
    """Runs blocking calls for an event loop. A call whose deadline is over goes on, and counts until it ends."""

    def __init__(
        self,
        *,
        threads_max: int = THREADS_MAX,
        requests_max: int = REQUESTS_MAX,
        seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="zhumq-web")
        self._requests_max = requests_max
        self._seconds_max = seconds_max
        self._requests = 0

    async def run(self, call: Callable[[], Result]) -> Result:
        """The result of a call. Raises RequestRefused if there are too many, or it takes too long."""
        if self._requests >= self._requests_max:
            raise too_busy(f"{self._requests_max} requests are being served: try again")
        loop = asyncio.get_running_loop()
        self._requests += 1
        future = self._threads.submit(call)

        def on_done(_: "Future[Result]") -> None:
            # The loop is closed when the program ends before the call does.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._release)

        future.add_done_callback(on_done)
        waiting = asyncio.wrap_future(future)
        # What a call raises after its deadline has no taker, and asyncio would log that.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(self._seconds_max):
                return await asyncio.shield(waiting)
        except TimeoutError:
            future.cancel()
            raise RequestRefused(
                HTTPStatus.GATEWAY_TIMEOUT,
                "Timed out",
                f"the request took longer than {self._seconds_max:g} s: a change may still be made",
            ) from None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self) -> None:
        self._requests -= 1
