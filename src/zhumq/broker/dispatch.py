"""The request pipeline: decode, quota, authorize, handler, answer; errors become responses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, Protocol

from zhumq.broker.access import Access, May, may_do_all
from zhumq.broker.long_requests import LongRequests, is_long
from zhumq.model.errors import BrokerError, ErrorCode, MalformedFrame
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.protocol.api import (
    APIS,
    ApiKey,
    Part,
    RequestHeader,
    UnsupportedApiVersion,
    client_id_of,
    decode_request,
    encode_response,
)
from zhumq.protocol.produce_codec import ProduceRun, parse_run
from zhumq.protocol.schema import Message

logger = logging.getLogger(__name__)

# A handler answers at once where it can, and by a future or a coroutine where it has to wait.
# None: the request has no answer (acks=0).
Handler = Callable[["RequestContext", Any], Any]
# Answers the first requests of a run, with a throttle time: returns how many, and their joined
# answers. None, and nothing was done: the first one is for the handler.
AnswerRun = Callable[[ProduceRun, int, ConnectionInfo], tuple[int, Answer] | None]


class Gate(Protocol):
    """Decides what a client may send that has yet to authenticate."""

    def admit(self, frame: bytes, connection: ConnectionInfo) -> None:
        """Raises MalformedFrame, which closes the connection, for all that does not authenticate."""

    def connection_lost(self, connection: ConnectionInfo) -> None: ...


_VERSION_ZERO: Final = 0
_PRODUCE: Final = ApiKey.PRODUCE
_PRODUCE_KEY: Final = int(_PRODUCE).to_bytes(2, "big")


@dataclass(slots=True)
class RequestContext:
    """The header of a request and its connection, and what the steps before the handler found."""

    header: RequestHeader
    connection: ConnectionInfo
    # For handlers that find out by themselves what is asked for. What `sees` denies is not reported.
    may: May = may_do_all
    sees: May = may_do_all
    throttle_ms: int = 0  # for how long the connection is not read after this request
    is_piece: bool = (
        False  # of a long request: its response is joined with others before it is encoded
    )

    @property
    def version(self) -> int:
        return self.header.api_version

    def encode(self, response: Any) -> list[Part]:
        """The answer: the response with its throttle time, as parts to send."""
        if self.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self.throttle_ms
        return encode_response(self.header, response)


@dataclass(slots=True)
class EncodedAnswer:
    """A future of parts that the handler encodes itself, which saves the hot path a second future."""

    future: asyncio.Future[Any]  # of parts, or None


class DeferredAnswer(EncodedAnswer):
    """The answer of a handler that is called back once, and has no task."""

    __slots__ = ("_context",)

    def __init__(self, context: RequestContext) -> None:
        super().__init__(asyncio.get_running_loop().create_future())
        self._context = context

    def __await__(self) -> Generator[Any, None, Any]:
        return self.future.__await__()

    def settle(self, response: Message) -> None:
        if self.future.done():
            return  # The connection is gone.
        try:
            context = self._context
            self.future.set_result(response if context.is_piece else context.encode(response))
        except Exception as failure:
            # The listener closes the connection: its client must not wait for ever.
            self.future.set_exception(failure)

    def settle_after(
        self,
        ready: asyncio.Future[None],
        respond: Callable[[], Message],
        *,
        release: Callable[[], None],
    ) -> None:
        """Settle with what `respond` returns once `ready` is done. `release` is called then, and if the connection
        is gone before."""

        def settle(_: asyncio.Future[None]) -> None:
            if self.future.done():
                return
            try:
                response = respond()
            except Exception as failure:
                self._fail(failure)
            else:
                self.settle(response)

        ready.add_done_callback(settle)
        self.future.add_done_callback(lambda _: release())

    def _fail(self, failure: Exception) -> None:
        if self._context.is_piece:
            self.future.set_exception(failure)  # encoded where the pieces are joined
            return
        try:
            self.future.set_result(_encode_failure(self._context, failure))
        except Exception as error:
            self.future.set_exception(error)


class Dispatcher:
    """The service behind the Kafka listener: the pipeline that every request passes."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        answer_run: AnswerRun,
        access: Access | None = None,
        *,
        gate: Gate | None = None,
        on_connection_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._handlers = handlers
        self._gate = gate or _ClosedGate()
        self._answer_run = answer_run
        self._access = access or Access()
        self._long_requests = LongRequests()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_connection_lost = on_connection_lost
        self.requests_handled = 0

    def handle(
        self, frames: Sequence[bytes], connection: ConnectionInfo, *, is_measured: bool = False
    ) -> tuple[int, Answer]:
        """Answers the first request, or a run of Produce requests about one partition. The steps are
        the same for both: decode, quota, authorize, handler, answer."""
        frame = frames[0]
        if not connection.is_authenticated:
            self._gate.admit(frame, connection)
        access = self._access
        quotas = access.quotas
        if quotas.is_active and not is_measured:
            return self._handle_measured(frames, connection)
        if frame.startswith(_PRODUCE_KEY):
            run = parse_run(frames)
            authorization = access.authorization
            # A run that is not permitted goes to the handler, which refuses it.
            if run is not None and (
                authorization is None or authorization.may_produce(connection, run)
            ):
                if quotas.is_active:
                    answered = self._answer_run_within_quotas(run, frames, connection)
                else:
                    answered = self._answer_run(run, 0, connection)
                if answered is not None:
                    self.requests_handled += answered[0]
                    return answered
        if is_long(frame):
            return 1, self._keep(self._answer_long(frame, connection))
        try:
            header, body = decode_request(frame)
        except UnsupportedApiVersion as unsupported:
            return 1, self._answer_unsupported(unsupported.header, connection, len(frame))
        context = RequestContext(header, connection)
        try:
            result = self._call(context, body, len(frame))
        except Exception as failure:
            return 1, _encode_failure(context, failure)
        if isinstance(result, Message):
            return 1, context.encode(result)
        if isinstance(result, EncodedAnswer):
            return 1, result.future
        return 1, None if result is None else self._answer_later(context, result)

    def _answer_run_within_quotas(
        self, run: ProduceRun, frames: Sequence[bytes], connection: ConnectionInfo
    ) -> tuple[int, Answer] | None:
        """Counts all requests of the run, as their answers have its throttle time, and takes back the rest of
        a run that ends early."""
        quotas, client_id = self._access.quotas, run.client_id
        sizes = [len(frame) for frame in frames[: len(run.correlation_ids)]]
        throttle_ms = quotas.record_request(connection, client_id, _PRODUCE, sum(sizes))
        answered = self._answer_run(run, throttle_ms, connection)
        rest = sum(sizes if answered is None else sizes[answered[0] :])
        if rest:
            quotas.take_back(connection, client_id, rest)
        return answered

    def _handle_measured(
        self, frames: Sequence[bytes], connection: ConnectionInfo
    ) -> tuple[int, Answer]:
        """Counts the time that requests take against the quota of their client."""
        begun = perf_counter_ns()
        try:
            return self.handle(frames, connection, is_measured=True)
        finally:
            self._access.quotas.record_time(
                connection, client_id_of(frames[0]), perf_counter_ns() - begun
            )

    def _call(self, context: RequestContext, body: Any, size: int) -> Any:
        """The steps between decoding and answering: quota, authorize, handler."""
        header, access = context.header, self._access
        self.requests_handled += 1
        if access.quotas.is_active:
            context.throttle_ms = access.quotas.record_request(
                context.connection, header.client_id, header.api_key, size
            )
        return self._call_handler(context, body)

    def _call_handler(self, context: RequestContext, body: Any) -> Any:
        handler = self._handlers.get(context.header.api_key)
        if handler is None:
            raise MalformedFrame(f"{context.header.api_key.name} is not served here")
        authorization = self._access.authorization
        if authorization is not None:
            return authorization.call(handler, context, body)
        return handler(context, body)

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """A connection ended. Its parked requests are cancelled already."""
        self._gate.connection_lost(connection)
        self._on_connection_lost(connection.id)

    async def _answer_long(self, frame: bytes, connection: ConnectionInfo) -> list[Part] | None:
        """Authorizes each piece of a long request, and handles it. The first one bears the quota."""
        context: RequestContext | None = None

        def handle(header: RequestHeader, body: Any) -> Any:
            nonlocal context
            if context is None:
                context = RequestContext(header, connection, is_piece=True)
                return self._call(context, body, len(frame))
            return self._call_handler(context, body)

        def encode(response: Message) -> list[Part]:
            assert context is not None
            return context.encode(response)

        try:
            return await self._long_requests.answer(frame, handle, encode)
        except UnsupportedApiVersion as unsupported:
            raise MalformedFrame(str(unsupported)) from unsupported
        except Exception as failure:
            if context is None:
                raise  # it could not be decoded
            return _encode_failure(context, failure)

    def _keep(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer_later(
        self, context: RequestContext, result: Awaitable[Any]
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
                    parts: list[Part] | None = _encode_failure(context, failure)
                else:
                    response = done.result()
                    if context.header.api_key is ApiKey.SHARE_FETCH:
                        self._count_share_fetch(context, response)
                    parts = None if response is None else context.encode(response)
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

    def _count_share_fetch(self, context: RequestContext, response: Any) -> None:
        """Records of share groups are acquired when they are counted, so they are sent, with a pause behind them."""
        quotas = self._access.quotas
        if quotas.is_active:
            size = sum(
                len(partition.records or b"")
                for topic in response.responses
                for partition in topic.partitions
            )
            throttle_ms = quotas.record_fetch(context.connection, context.header.client_id, size)
            context.throttle_ms = max(context.throttle_ms, throttle_ms)

    def _answer_unsupported(
        self, header: RequestHeader, connection: ConnectionInfo, size: int
    ) -> Answer:
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
        context = RequestContext(oldest, connection)
        response = self._call(context, None, size)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return context.encode(response)


class _ClosedGate:
    """The gate of a broker whose listeners have no SASL."""

    def admit(self, frame: bytes, connection: ConnectionInfo) -> None:  # noqa: ARG002
        raise MalformedFrame(f"listener {connection.listener} has no way to authenticate")

    def connection_lost(self, connection: ConnectionInfo) -> None: ...


def _encode_failure(context: RequestContext, failure: BaseException) -> list[Part]:
    """The API's response with a top-level error; where it has none, handlers answer per item."""
    if isinstance(failure, MalformedFrame):
        raise failure
    header = context.header
    name = header.api_key.name
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(failure, BrokerError):
        code = failure.code
    else:
        logger.error("%s v%d failed", name, header.api_version, exc_info=failure)
    response = APIS[header.api_key].response()
    if not hasattr(response, "error_code"):
        raise MalformedFrame(f"{name} cannot be answered: {code.name}")
    response.error_code = code
    return context.encode(response)
