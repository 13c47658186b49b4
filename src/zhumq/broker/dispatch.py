"""From a frame to its answer: decodes, finds the handler, turns errors into responses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zhumq.broker.long_requests import LongRequests, is_long
from zhumq.model.errors import BrokerError, ErrorCode, MalformedFrame
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.protocol.api import (
    APIS,
    ApiKey,
    Part,
    RequestHeader,
    UnsupportedApiVersion,
    decode_request,
    encode_response,
)
from zhumq.protocol.schema import Message

logger = logging.getLogger(__name__)

# A handler answers at once where it can, and by a future or a coroutine where it has to wait.
# None: the request has no answer (acks=0).
Handler = Callable[["RequestContext", Any], Any]
# Answers the first frame, or a run of frames: returns how many, and their joined answers.
AnswerRun = Callable[[Sequence[bytes]], tuple[int, Answer] | None]

_VERSION_ZERO: Final = 0
_PRODUCE_KEY: Final = int(ApiKey.PRODUCE).to_bytes(2, "big")


@dataclass(slots=True)
class RequestContext:
    """The header of a request and its connection."""

    header: RequestHeader
    connection: ConnectionInfo

    @property
    def version(self) -> int:
        return self.header.api_version


@dataclass(slots=True)
class EncodedAnswer:
    """A future of parts that the handler encodes itself, which saves the hot path a second future."""

    future: asyncio.Future[list[Part] | None]


class Dispatcher:
    """The service behind the Kafka listener."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], answer_produces: AnswerRun) -> None:
        self._handlers = handlers
        # The fast path: answers from the raw frames, or None to take the slow path.
        self._answer_produces = answer_produces
        self._long_requests = LongRequests()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lost_watchers: list[Callable[[int], None]] = []
        self.requests_handled = 0

    def handle(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        run = self.handle_run((frame,), connection)
        if run is not None:
            return run[1]
        if is_long(frame):
            return self._keep(self._answer_long(frame, connection))
        try:
            request = decode_request(frame)
        except UnsupportedApiVersion as unsupported:
            return self._answer_unsupported(unsupported.header, connection)
        header = request.header
        handler = self._handlers.get(header.api_key)
        if handler is None:
            raise MalformedFrame(f"{header.api_key.name} is not served here")
        self.requests_handled += 1
        try:
            result = handler(RequestContext(header, connection), request.body)
        except Exception as failure:
            return _encode_failure(header, failure)
        if isinstance(result, Message):
            return encode_response(header, result)
        if isinstance(result, EncodedAnswer):
            return result.future
        return None if result is None else self._answer_later(header, result)

    def handle_run(
        self,
        frames: Sequence[bytes],
        connection: ConnectionInfo,  # noqa: ARG002
    ) -> tuple[int, Answer] | None:
        if not frames[0].startswith(_PRODUCE_KEY):
            return None
        run = self._answer_produces(frames)
        if run is not None:
            self.requests_handled += run[0]
        return run

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Notifies watchers that a connection ended. Its parked requests are cancelled already."""
        for watcher in self._lost_watchers:
            watcher(connection.id)

    def watch_lost_connections(self, watcher: Callable[[int], None]) -> None:
        """Call `watcher` with the id of each connection that ends."""
        self._lost_watchers.append(watcher)

    async def _answer_long(self, frame: bytes, connection: ConnectionInfo) -> list[Part] | None:
        header: RequestHeader | None = None

        def handle(of_frame: RequestHeader, body: Any) -> Any:
            nonlocal header
            if header is None:
                header = of_frame
                self.requests_handled += 1
            return self._handlers[header.api_key](RequestContext(header, connection), body)

        try:
            return await self._long_requests.answer(frame, handle)
        except UnsupportedApiVersion as unsupported:
            raise MalformedFrame(str(unsupported)) from unsupported
        except Exception as failure:
            if header is None:
                raise  # it could not be decoded
            return _encode_failure(header, failure)

    def _keep(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer_later(
        self, header: RequestHeader, result: Awaitable[Any]
    ) -> asyncio.Future[list[Part] | None]:
        loop = asyncio.get_running_loop()
        if isinstance(result, Coroutine):
            work: asyncio.Future[Any] = self._keep(result)
        else:
            assert isinstance(result, asyncio.Future)
            work = result
        answer: asyncio.Future[list[Part] | None] = loop.create_future()

        def finish(done: asyncio.Future[Any]) -> None:
            if answer.done():
                if not done.cancelled():
                    done.exception()  # Retrieved: the client is gone.
                return
            if done.cancelled():
                answer.cancel()
                return
            failure = done.exception()
            try:
                if failure is not None:
                    parts: list[Part] | None = _encode_failure(header, failure)
                else:
                    response = done.result()
                    parts = None if response is None else encode_response(header, response)
            except Exception as error:
                # The listener closes the connection: its client must not wait for ever.
                answer.set_exception(error)
            else:
                answer.set_result(parts)

        def give_up(given_up: asyncio.Future[list[Part] | None]) -> None:
            # The connection is gone: stop the work for it as well.
            if given_up.cancelled() and not work.done():
                work.cancel()

        work.add_done_callback(finish)
        answer.add_done_callback(give_up)
        return answer

    def _answer_unsupported(self, header: RequestHeader, connection: ConnectionInfo) -> Answer:
        if header.api_key is not ApiKey.API_VERSIONS:
            raise MalformedFrame(
                f"{header.api_key.name} v{header.api_version} is not supported by this broker"
            )
        # KIP-511: the client learns the range from a version 0 body and asks again.
        oldest = RequestHeader(
            api_key=header.api_key,
            api_version=_VERSION_ZERO,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
        )
        handler = self._handlers[ApiKey.API_VERSIONS]
        response = handler(RequestContext(oldest, connection), None)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return encode_response(oldest, response)


def _encode_failure(header: RequestHeader, failure: BaseException) -> list[Part]:
    if isinstance(failure, MalformedFrame):
        raise failure
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(failure, BrokerError):
        code = failure.code
    else:
        name, version = header.api_key.name, header.api_version
        logger.error("%s v%d failed", name, version, exc_info=failure)
    return encode_response(header, _error_response(header, code))


def _error_response(header: RequestHeader, code: ErrorCode) -> Any:
    """The API's response with a top-level error; where it has none, handlers answer per item."""
    response = APIS[header.api_key].response()
    if not hasattr(response, "error_code"):
        raise MalformedFrame(f"{header.api_key.name} cannot be answered: {code.name}")
    response.error_code = code
    return response
