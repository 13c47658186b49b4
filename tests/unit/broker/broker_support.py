"""Frames, a connection, and what the steps of the pipeline were asked, for the tests of the request layer."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from zhumq.broker.access import Access
from zhumq.broker.dispatch import Dispatcher, Handler, RequestContext
from zhumq.broker.quotas import NoQuotas
from zhumq.model.ids import Principal
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.protocol.api import ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.produce_codec import ProduceRun
from zhumq.protocol.schema import Message

CLIENT_ID = "shop"
CORRELATION_ID = 7
FRAME_SIZE_BYTES = 4


def connection(number: int = 1) -> ConnectionInfo:
    return ConnectionInfo(
        id=number, client_host="10.0.0.9", client_port=40_000 + number, listener="PLAINTEXT"
    )


def frame_of(
    key: ApiKey, version: int, body: Message, correlation_id: int = CORRELATION_ID
) -> bytes:
    header = RequestHeader(
        api_key=key, api_version=version, correlation_id=correlation_id, client_id=CLIENT_ID
    )
    return encode_request(header, body)[FRAME_SIZE_BYTES:]


def parts_of(answer: Answer) -> bytes:
    """The bytes of an answer that is there."""
    if isinstance(answer, asyncio.Future):
        answer = answer.result()
    assert answer is not None, "the request has no answer"
    return b"".join(part if isinstance(part, bytes) else part.read_bytes() for part in answer)  # type: ignore[attr-defined]


def responses(key: ApiKey, version: int, answer: Answer) -> list[tuple[int, Any]]:
    """The correlation ids and the responses of a joined answer."""
    data = parts_of(answer)
    found = []
    while data:
        end = FRAME_SIZE_BYTES + int.from_bytes(data[:FRAME_SIZE_BYTES], "big")
        found.append(decode_response(key, version, data[FRAME_SIZE_BYTES:end]))
        data = data[end:]
    return found


def response(key: ApiKey, version: int, answer: Answer) -> Any:
    ((correlation_id, found),) = responses(key, version, answer)
    assert correlation_id == CORRELATION_ID
    return found


def dispatcher(
    handlers: Mapping[ApiKey, Handler],
    access: Access | None = None,
    on_connection_lost: Callable[[int], None] = lambda _: None,
) -> Dispatcher:
    """A pipeline in which every request goes alone."""
    return Dispatcher(
        handlers,
        lambda run, throttle_ms, connection: None,
        access,
        on_connection_lost=on_connection_lost,
    )


class StrictQuotas(NoQuotas):
    """Throttles every request, and remembers what was recorded."""

    is_active = True

    def __init__(self, throttle_ms: int) -> None:
        self._throttle_ms = throttle_ms
        self.recorded: list[tuple[str | None, ApiKey, int]] = []
        self.timed: list[str | None] = []

    def record_request(
        self, connection: ConnectionInfo, client_id: str | None, api_key: ApiKey, request_bytes: int
    ) -> int:
        self.recorded.append((client_id, api_key, request_bytes))
        return self._throttle_ms

    def take_back(
        self, connection: ConnectionInfo, client_id: str | None, request_bytes: int
    ) -> None:
        self.recorded.append((client_id, ApiKey.PRODUCE, -request_bytes))

    def record_time(
        self, connection: ConnectionInfo, client_id: str | None, nanoseconds: int
    ) -> None:
        assert nanoseconds > 0
        self.timed.append(client_id)


class StrictAccess(Access):
    """Denies names, throttles, and remembers what it was asked about. It is its own authorization."""

    def __init__(self, denied: Collection[str] = (), throttle_ms: int = 0) -> None:
        self.strict_quotas = StrictQuotas(throttle_ms)
        super().__init__(self, self.strict_quotas)
        self.denied = denied
        self.refusal: Exception | None = None
        self.authorized: list[tuple[Principal, str, ApiKey]] = []

    @property
    def recorded(self) -> list[tuple[str | None, ApiKey, int]]:
        return self.strict_quotas.recorded

    def may_produce(self, connection: ConnectionInfo, run: ProduceRun) -> bool:
        self._ask(connection, ApiKey.PRODUCE)
        return run.topic.decode() not in self.denied

    def call(self, handler: Handler, context: RequestContext, request: Any) -> Any:
        self._ask(context.connection, context.header.api_key)
        if self.refusal is not None:
            raise self.refusal
        context.may = lambda operation, type_, name: name not in self.denied
        return handler(context, request)

    def _ask(self, connection: ConnectionInfo, api_key: ApiKey) -> None:
        self.authorized.append((connection.principal, connection.client_host, api_key))
