"""Serves requests of other brokers on the inter-broker listener, after a handshake."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from zhumq.model.errors import BrokerError, ErrorCode, MalformedFrame
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.protocol.api import Part
from zhumq.protocol.messages.replicas import ProofResponse
from zhumq.protocol.peer_api import (
    Answered,
    Asked,
    PeerApi,
    PeerRequest,
    decode_peer_request,
    encode_peer_answer,
    encode_peer_refusal,
    read_peer_request,
)
from zhumq.protocol.schema import Message
from zhumq.replication.inter_broker.handshake import (
    HELLO,
    PROOF,
    Acceptance,
    Identity,
    Peer,
    PeerNotTrusted,
)

logger = logging.getLogger(__name__)

# The largest frame before the handshake is complete.
GREETING_BYTES_MAX = 4 * 1024
OWN_CONNECTION = -1
OWN_EPOCH = -1  # handlers of own requests do not look at it


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnection:
    """A connection of an authenticated broker."""

    id: int
    peer: Peer


# Answers at once, or later. A BrokerError becomes a refusal: the requesting broker gets PeerRefused.
PeerHandler = Callable[[PeerConnection, Asked], Answered | Awaitable[Answered]]


class PeerService:
    """The net.connection.Service of the inter-broker listener."""

    def __init__(
        self,
        identity: Identity,
        *,
        is_known: Callable[[Peer], bool] = lambda _: True,
    ) -> None:
        self._identity = identity
        self._is_known = is_known
        self._handlers: dict[int, tuple[PeerApi[Any, Any], PeerHandler[Any, Any]]] = {}
        self._greeted: dict[int, Acceptance] = {}
        self._peers: dict[int, PeerConnection] = {}
        self._lost_callbacks: list[Callable[[PeerConnection], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused_count = 0
        self.requests_count = 0

    def register(
        self, api: PeerApi[Asked, Answered], handler: PeerHandler[Asked, Answered]
    ) -> None:
        """Handle requests of this API."""
        if api.key in self._handlers:
            raise ValueError(f"API key {api.key} has a handler already")
        self._handlers[api.key] = (api, handler)

    async def answer_own(self, api: PeerApi[Asked, Answered], message: Asked) -> Answered:
        """Answer a request of this broker itself. Raises what the handler raises."""
        own = Peer(broker_id=self._identity.broker_id, broker_epoch=OWN_EPOCH)
        answer = self._handlers[api.key][1](PeerConnection(id=OWN_CONNECTION, peer=own), message)
        result = answer if isinstance(answer, Message) else await cast("Awaitable[Any]", answer)
        return cast("Answered", result)

    def watch_lost(self, callback: Callable[[PeerConnection], None]) -> None:
        """Call back when the connection of an authenticated peer is lost."""
        self._lost_callbacks.append(callback)

    # Called by the listener

    def handle(self, frames: Sequence[bytes], connection: ConnectionInfo) -> tuple[int, Answer]:
        return 1, self._answer(frames[0], connection)

    def _answer(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        peer = self._peers.get(connection.id)
        if peer is None:
            return self._greet(frame, connection)
        request = decode_peer_request(frame)
        self.requests_count += 1
        found = self._handlers.get(request.key)
        if found is None:
            text = f"API key {request.key} is not known here"
            return [
                encode_peer_refusal(request.correlation_id, ErrorCode.UNSUPPORTED_VERSION, text)
            ]
        api, handler = found
        message = read_peer_request(api, request)
        try:
            answer = handler(peer, message)
        except BrokerError as reason:
            return [encode_peer_refusal(request.correlation_id, reason.code, str(reason))]
        if isinstance(answer, Message):
            return list(encode_peer_answer(api, request.correlation_id, answer))
        return self._answer_later(api, request, cast("Awaitable[Message]", answer))

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self._greeted.pop(connection.id, None)
        peer = self._peers.pop(connection.id, None)
        if peer is not None:
            for callback in self._lost_callbacks:
                callback(peer)

    # The handshake

    def _greet(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        try:
            return self._take_greeting(frame, connection)
        except (BrokerError, MalformedFrame) as reason:
            # The connection closes, and logs the reason at a limited rate.
            self.refused_count += 1
            raise MalformedFrame(str(reason)) from reason

    def _take_greeting(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        if len(frame) > GREETING_BYTES_MAX:
            raise MalformedFrame(f"{len(frame)} bytes before a greeting")
        request = decode_peer_request(frame)
        greeted = self._greeted.pop(connection.id, None)
        if request.key == HELLO.key and greeted is None:
            acceptance = Acceptance(self._identity, read_peer_request(HELLO, request))
            answer = acceptance.answer()
            self._greeted[connection.id] = acceptance
            return list(encode_peer_answer(HELLO, request.correlation_id, answer))
        if request.key == PROOF.key and greeted is not None:
            peer = greeted.check(read_peer_request(PROOF, request))
            if not self._is_known(peer):
                raise PeerNotTrusted(
                    f"broker {peer.broker_id} with epoch {peer.broker_epoch} is not known"
                )
            self._peers[connection.id] = PeerConnection(id=connection.id, peer=peer)
            done = ProofResponse(broker_id=self._identity.broker_id)
            return list(encode_peer_answer(PROOF, request.correlation_id, done))
        raise MalformedFrame(f"a request with key {request.key} before a greeting")

    # Answers that are not ready at once

    def _answer_later(
        self, api: PeerApi[Any, Any], request: PeerRequest, answer: Awaitable[Message]
    ) -> "asyncio.Future[list[Part] | None]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Part] | None] = loop.create_future()
        if isinstance(answer, asyncio.Future):
            # The path of replica fetches: without a task per fetch.
            answer.add_done_callback(lambda ready: _settle(api, request, ready, done))
            done.add_done_callback(lambda gone: answer.cancel() if gone.cancelled() else None)
            return done
        task = loop.create_task(self._await_answer(api, request, answer, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        done.add_done_callback(lambda gone: task.cancel() if gone.cancelled() else None)
        return done

    async def _await_answer(
        self,
        api: PeerApi[Any, Any],
        request: PeerRequest,
        answer: Awaitable[Message],
        done: "asyncio.Future[list[Part] | None]",
    ) -> None:
        try:
            parts = list(encode_peer_answer(api, request.correlation_id, await answer))
        except BrokerError as reason:
            parts = [encode_peer_refusal(request.correlation_id, reason.code, str(reason))]
        except Exception:
            logger.exception("a request of another broker with API key %d failed", request.key)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            parts = [encode_peer_refusal(request.correlation_id, code, "the request failed")]
        if not done.done():
            done.set_result(parts)


def _settle(
    api: PeerApi[Any, Any],
    request: PeerRequest,
    ready: "asyncio.Future[Message]",
    done: "asyncio.Future[list[Part] | None]",
) -> None:
    if done.done() or ready.cancelled():
        done.cancel()
        return
    failure = ready.exception()
    if failure is None:
        done.set_result(list(encode_peer_answer(api, request.correlation_id, ready.result())))
    elif isinstance(failure, BrokerError):
        done.set_result([encode_peer_refusal(request.correlation_id, failure.code, str(failure))])
    else:
        done.set_exception(failure)
