"""Reads the bodies of requests: with a bound for each, a bound for all of them together, and a deadline."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from zhumq.web.answers import JSON
from zhumq.web.problems import RequestRefused, too_busy

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
ALL_BYTES_MAX: Final = 64 * 1024 * 1024  # of requests that are being read or served
BODY_SECONDS_MAX: Final = 20.0
JSON_ONLY: Final = frozenset({JSON})


class Bodies:
    """The bodies in memory. Callers need not be known for theirs to be read, so all of them are bounded."""

    def __init__(
        self,
        *,
        bytes_max: int = BODY_BYTES_MAX,
        all_bytes_max: int = ALL_BYTES_MAX,
        seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._all_bytes_max = all_bytes_max
        self._seconds_max = seconds_max
        self._all_bytes = 0

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, types: Collection[str] = JSON_ONLY
    ) -> AsyncIterator[bytes]:
        """The body, which counts until the end of the block. Raises RequestRefused.

        `types` are media types of JSON: pages of other sites can send forms and plain text without being asked.
        """
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._seconds_max):
                    async for chunk in request.stream():
                        body += chunk
                        self._all_bytes += len(chunk)
                        self._check(len(body))
            except TimeoutError:
                raise RequestRefused(
                    HTTPStatus.REQUEST_TIMEOUT,
                    "Timed out",
                    f"the body did not come within {self._seconds_max:g} s",
                ) from None
            if body:
                _check_type(request.headers.get("content-type", ""), types)
            yield bytes(body)
        finally:
            self._all_bytes -= len(body)

    def _check(self, length: int) -> None:
        if length > self._bytes_max:
            raise RequestRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "Too large",
                f"a body has up to {self._bytes_max} bytes",
            )
        if self._all_bytes > self._all_bytes_max:
            raise too_busy("the bodies of other requests take all the room: try again")


def _check_type(header: str, types: Collection[str]) -> None:
    kind = header.partition(";")[0].strip().lower()
    if kind not in types:
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Not JSON", f"a body is {JSON}, not {kind!r}"
        )
