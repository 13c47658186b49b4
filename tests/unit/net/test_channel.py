"""An outgoing connection: pipelined, bounded, with deadlines, reopened after a loss."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from zhumq.model.errors import ErrorCode
from zhumq.net.channel import (
    Channel,
    ChannelLimits,
    Exchange,
    PeerAddress,
    PeerRefused,
    PeerUnavailable,
)
from zhumq.protocol.messages.replicas import LogEndAnswer, LogEndsRequest, LogEndsResponse
from zhumq.protocol.peer_api import (
    PeerApi,
    decode_peer_request,
    encode_peer_answer,
    encode_peer_refusal,
)

API = PeerApi(LogEndsRequest, LogEndsResponse)
Script = Callable[[bytes, int], bytes | None]
DEADLINE_SECONDS = 20.0


def run(body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(body, DEADLINE_SECONDS))


class ScriptedPeer:
    """Accepts connections; answers each frame with what the script returns, or not at all."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.frames = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: Any = None

    async def open(self) -> "ScriptedPeer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                frame = await reader.readexactly(size)
                self.frames += 1
                answer = self.script(frame, self.frames)
                if answer is not None:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self) -> None:
        self._server.close()
        self.hang_up()


def _good(frame: bytes, number: int) -> bytes:
    request = decode_peer_request(frame)
    answer = LogEndsResponse(log_ends=[LogEndAnswer(topic="t", partition=number)])
    return b"".join(bytes(part) for part in encode_peer_answer(API, request.correlation_id, answer))  # type: ignore[call-overload]


async def _no_greeting(_: Exchange) -> None:
    return


def _channel(peer: ScriptedPeer, **options: Any) -> Channel:
    limits = ChannelLimits(**{"connect_ms": 5_000, "request_ms": 20_000, **options})
    return Channel("the peer", lambda: PeerAddress(*peer.address), _no_greeting, limits=limits)


def test_many_requests_share_a_connection_and_get_their_own_answers() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(_good).open()
        channel = _channel(peer)
        answers = await asyncio.gather(*(channel.request(API, LogEndsRequest()) for _ in range(50)))
        assert [each.log_ends[0].partition for each in answers] == list(range(1, 51))
        assert peer.connections == channel.connections_made == 1
        channel.close()
        peer.close()

    run(body())


def test_an_answer_that_does_not_come_in_time_closes_the_connection() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(lambda _frame, _number: None).open()
        lost: list[bool] = []
        channel = Channel(
            "the peer",
            lambda: PeerAddress(*peer.address),
            _no_greeting,
            limits=ChannelLimits(),
            on_lost=lambda: lost.append(True),
        )
        patient = asyncio.ensure_future(channel.request(API, LogEndsRequest()))
        await asyncio.sleep(0)
        with pytest.raises(PeerUnavailable, match="in time"):
            await channel.request(API, LogEndsRequest(), timeout_ms=20)
        # Those behind a late answer would wait for ever.
        with pytest.raises(PeerUnavailable):
            await patient
        assert lost == [True]
        assert not channel.is_connected
        channel.close()
        peer.close()

    run(body())


def test_a_lost_connection_fails_pending_requests_and_is_reopened() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(
            lambda frame, number: _good(frame, 1) if number == 1 else None
        ).open()
        channel = _channel(peer)
        await channel.request(API, LogEndsRequest())
        waiting = asyncio.ensure_future(channel.request(API, LogEndsRequest()))
        while peer.frames < 2:
            await asyncio.sleep(0.001)
        peer.hang_up()
        with pytest.raises(PeerUnavailable, match="lost"):
            await waiting
        peer.script = _good
        assert (await channel.request(API, LogEndsRequest())).log_ends
        assert peer.connections == 2
        channel.close()
        peer.close()

    run(body())


def test_a_peer_that_does_not_listen_is_not_tried_again_at_once() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(_good).open()
        address = peer.address
        peer.close()
        channel = Channel(
            "the peer",
            lambda: PeerAddress(*address),
            _no_greeting,
            limits=ChannelLimits(backoff_min_ms=10_000, backoff_max_ms=20_000),
        )
        with pytest.raises(PeerUnavailable) as first:
            await channel.request(API, LogEndsRequest())
        assert isinstance(first.value.__cause__, ConnectionRefusedError)
        assert channel.retry_seconds > 5
        with pytest.raises(PeerUnavailable) as second:
            await channel.request(API, LogEndsRequest())
        assert second.value.__cause__ is None
        channel.close()

    run(body())


def test_a_peer_that_closes_after_the_handshake_is_not_tried_again_at_once() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(lambda _frame, _number: b"nonsense that is no frame").open()
        channel = Channel(
            "the peer",
            lambda: PeerAddress(*peer.address),
            _no_greeting,
            limits=ChannelLimits(backoff_min_ms=10_000, backoff_max_ms=20_000),
        )
        with pytest.raises(PeerUnavailable):
            await channel.request(API, LogEndsRequest())
        assert channel.retry_seconds > 5
        channel.close()
        peer.close()

    run(body())


def test_a_peer_without_a_known_address_is_unavailable() -> None:
    async def body() -> None:
        channel = Channel("the peer", lambda: None, _no_greeting)
        with pytest.raises(PeerUnavailable, match="address is unknown"):
            await channel.request(API, LogEndsRequest())
        with pytest.raises(PeerUnavailable):
            channel.start(API, LogEndsRequest())
        channel.close()

    run(body())


def test_a_handshake_that_fails_closes_the_connection() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(_good).open()

        async def refuse(_: Exchange) -> None:
            raise PeerRefused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "who are you?")

        channel = Channel("the peer", lambda: PeerAddress(*peer.address), refuse)
        with pytest.raises(PeerUnavailable, match="who are you"):
            await channel.connect()
        assert not channel.is_connected
        channel.close()
        peer.close()

    run(body())


def test_a_handshake_that_never_ends_times_out() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(lambda _frame, _number: None).open()

        async def greet(exchange: Exchange) -> None:
            await exchange(API, LogEndsRequest())

        channel = Channel(
            "the peer",
            lambda: PeerAddress(*peer.address),
            greet,
            limits=ChannelLimits(connect_ms=30),
        )
        with pytest.raises(PeerUnavailable):
            await channel.connect()
        channel.close()
        peer.close()

    run(body())


def test_what_waits_for_answers_is_bounded() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(lambda _frame, _number: None).open()
        channel = _channel(peer, requests_in_flight_max=3)
        await channel.connect()
        held = [channel.start(API, LogEndsRequest()) for _ in range(3)]
        with pytest.raises(PeerUnavailable, match="too much"):
            channel.start(API, LogEndsRequest())
        channel.close()
        assert all(isinstance(each.exception(), PeerUnavailable) for each in held)

        small = _channel(peer, bytes_in_flight_max=30)
        await small.connect()
        small.start(API, LogEndsRequest())
        small.start(API, LogEndsRequest())
        with pytest.raises(PeerUnavailable, match="too much"):
            small.start(API, LogEndsRequest())
        small.close()
        peer.close()

    run(body())


def test_a_refusal_is_an_answer() -> None:
    async def body() -> None:
        def refuse(frame: bytes, _: int) -> bytes:
            request = decode_peer_request(frame)
            return encode_peer_refusal(request.correlation_id, ErrorCode.INVALID_REQUEST, "no")

        peer = await ScriptedPeer(refuse).open()
        channel = _channel(peer)
        for _ in range(2):
            with pytest.raises(PeerRefused, match="no") as refused:
                await channel.request(API, LogEndsRequest())
            assert refused.value.error is ErrorCode.INVALID_REQUEST
        assert peer.connections == 1
        channel.close()
        peer.close()

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">iih", 6, 99, 0),  # an answer to another question
        struct.pack(">iih", 6, 1, 0),  # without its message
        struct.pack(">iih", 6, 1, 30_000),  # an unknown error code
        struct.pack(">iihi", 10, 1, 0, 2**31 - 1),  # a list without end
    ],
)
def test_malformed_answers_fail_the_request(answer: bytes) -> None:
    async def body() -> None:
        peer = await ScriptedPeer(lambda _frame, _number: answer).open()
        channel = _channel(peer)
        with pytest.raises(PeerUnavailable):
            await channel.request(API, LogEndsRequest())
        assert not channel.is_connected
        channel.close()
        peer.close()

    run(body())


def test_a_closed_channel_asks_nothing() -> None:
    async def body() -> None:
        peer = await ScriptedPeer(_good).open()
        channel = _channel(peer)
        await channel.connect()
        channel.close()
        with pytest.raises(PeerUnavailable):
            await channel.request(API, LogEndsRequest())
        peer.close()

    run(body())
