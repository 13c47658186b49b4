"""Authentication on the inter-broker listener: forged peers, garbage, clients on the wrong listener."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from replication_support import CLUSTER_ID, SECRET, T0, batch, nodes, produce, run, until

from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest
from zhumq.net.channel import PeerAddress, PeerRefused, PeerUnavailable
from zhumq.net.listener import Endpoint, Listener
from zhumq.protocol.messages.replicas import (
    HelloRequest,
    LogEndsRequest,
    LogEndsResponse,
    ProofRequest,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
)
from zhumq.protocol.peer_api import PeerApi, decode_peer_answer, encode_peer_request
from zhumq.replication.inter_broker.fetcher import REPLICA_FETCH
from zhumq.replication.inter_broker.handshake import HELLO, PROOF, Identity, Peer
from zhumq.replication.inter_broker.peer_service import PeerConnection, PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.log_ends import LOG_ENDS


def _identity(broker_id: int, *, secret: bytes = SECRET, cluster: str = CLUSTER_ID) -> Identity:
    return Identity(cluster_id=cluster, broker_id=broker_id, secret=secret)


def _answer(_: PeerConnection, request: LogEndsRequest) -> LogEndsResponse:
    if not request.partitions:
        raise InvalidRequest("nothing was asked")
    return LogEndsResponse()


@contextlib.asynccontextmanager
async def _listening(service: PeerService) -> AsyncIterator[tuple[str, int]]:
    async with await Listener.open(Endpoint(host="127.0.0.1", port=0), service=service) as listener:
        yield listener.address


async def _closed(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes and read until the other side closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_brokers_that_know_the_secret_ask_each_other(tmp_path: Path) -> None:
    async def body() -> None:
        service = PeerService(_identity(1))
        seen: list[Peer] = []

        def answer(connection: PeerConnection, _: LogEndsRequest) -> LogEndsResponse:
            seen.append(connection.peer)
            return LogEndsResponse()

        service.register(LOG_ENDS, answer)
        async with _listening(service) as address:
            peers = Peers(_identity(2), lambda _: PeerAddress(*address))
            peers.broker_epoch = 77
            await peers.request(1, LOG_ENDS, LogEndsRequest())
            peers.close()
        assert seen == [Peer(broker_id=2, broker_epoch=77)]
        assert service.refused_count == 0

    run(body())


@pytest.mark.parametrize(
    ("identity", "asks_for"),
    [
        (_identity(2, secret=b"guessed, and wrong"), 1),
        (_identity(2, cluster="another"), 1),
        (_identity(2), 3),  # another broker had this address before
        (_identity(1), 1),  # two brokers with one id
    ],
)
def test_a_broker_of_another_cluster_or_identity_is_refused(
    identity: Identity, asks_for: int
) -> None:
    async def body() -> None:
        service = PeerService(_identity(1))
        service.register(LOG_ENDS, _answer)
        async with _listening(service) as address:
            peers = Peers(identity, lambda _: PeerAddress(*address))
            with pytest.raises(PeerUnavailable):
                await peers.request(asks_for, LOG_ENDS, LogEndsRequest())
            peers.close()
        # Either side may detect it first; the connecting side checks the other one as well.
        assert service.requests_count == 0

    run(body())


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="guessed"):
        _identity(1, secret=b"short")


def test_a_broker_of_an_earlier_broker_epoch_is_refused() -> None:
    async def body() -> None:
        service = PeerService(_identity(1), is_known=lambda peer: peer.broker_epoch >= 5)
        service.register(LOG_ENDS, _answer)
        async with _listening(service) as address:
            peers = Peers(_identity(2), lambda _: PeerAddress(*address))
            peers.broker_epoch = 4
            with pytest.raises(PeerUnavailable):
                await peers.request(1, LOG_ENDS, LogEndsRequest())
            assert service.refused_count == 1
            peers.close()

    run(body())


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        # A client's ApiVersions request.
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
        # A replica fetch without a handshake.
        encode_peer_request(
            REPLICA_FETCH, 1, ReplicaFetchRequest(partitions=[ReplicaFetchPartition()])
        ),
        # A proof without a hello.
        encode_peer_request(PROOF, 1, ProofRequest(proof=b"x" * 32)),
        # A truncated hello, and one with an empty nonce.
        struct.pack(">ihi", 6, HELLO.key, 1),
        encode_peer_request(HELLO, 1, HelloRequest(cluster_id=CLUSTER_ID, broker_id=2)),
        # More than the largest frame before the handshake is complete.
        struct.pack(">i", 5000) + struct.pack(">hi", HELLO.key, 1) + bytes(4994),
    ],
)
def test_garbage_closes_only_its_own_connection(data: bytes) -> None:
    async def body() -> None:
        service = PeerService(_identity(1))
        service.register(LOG_ENDS, _answer)
        async with _listening(service) as address:
            peers = Peers(_identity(2), lambda _: PeerAddress(*address))
            with pytest.raises(PeerRefused):
                await peers.request(1, LOG_ENDS, LogEndsRequest())
            await _closed(address, data)
            # The good connection stays open.
            with pytest.raises(PeerRefused) as refused:
                await peers.request(1, LOG_ENDS, LogEndsRequest())
            assert refused.value.error is ErrorCode.INVALID_REQUEST
            peers.close()

    run(body())


def test_a_recorded_proof_is_of_no_use_on_another_connection() -> None:
    async def body() -> None:
        service = PeerService(_identity(1))
        async with _listening(service) as address:
            recorded: list[bytes] = []
            relaying: list[asyncio.Task[None] | None] = []

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                # The event loop holds no reference to a task: a waiting one could be collected.
                relaying.append(asyncio.current_task())
                there, back = await asyncio.open_connection(*address)

                async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                    while data := await source.read(4096):
                        sink.write(data)

                answers = asyncio.create_task(pump(there, writer))
                while data := await reader.read(4096):
                    recorded.append(data)
                    back.write(data)
                back.close()
                await answers
                writer.close()

            server = await asyncio.start_server(relay, "127.0.0.1", 0)
            peers = Peers(_identity(2), lambda _: PeerAddress(*server.sockets[0].getsockname()))
            with pytest.raises(PeerRefused):
                await peers.request(1, LOG_ENDS, LogEndsRequest())
            peers.close()
            server.close()
            await asyncio.gather(*(task for task in relaying if task is not None))
            assert len(recorded) >= 2
            refused = service.refused_count
            await _closed(address, b"".join(recorded))
            assert service.refused_count == refused + 1

    run(body())


def test_a_request_without_a_handler_is_refused_and_the_connection_stays() -> None:
    async def body() -> None:
        service = PeerService(_identity(1))
        async with _listening(service) as address:
            peers = Peers(_identity(2), lambda _: PeerAddress(*address))
            for _ in range(2):
                with pytest.raises(PeerRefused) as refused:
                    await peers.request(1, LOG_ENDS, LogEndsRequest())
                assert refused.value.error is ErrorCode.UNSUPPORTED_VERSION
            peers.close()
            assert service.refused_count == 0

    run(body())


def test_an_answer_may_take_its_time_and_fail() -> None:
    async def body() -> None:
        service = PeerService(_identity(1))

        async def answer(_: PeerConnection, request: LogEndsRequest) -> LogEndsResponse:
            await asyncio.sleep(0)
            if request.partitions:
                raise RuntimeError("a bug")
            raise InvalidRequest("not now")

        service.register(LOG_ENDS, answer)
        with pytest.raises(ValueError, match="has a handler already"):
            service.register(LOG_ENDS, answer)
        async with _listening(service) as address:
            peers = Peers(_identity(2), lambda _: PeerAddress(*address))
            with pytest.raises(PeerRefused) as refused:
                await peers.request(1, LOG_ENDS, LogEndsRequest())
            assert refused.value.error is ErrorCode.INVALID_REQUEST
            assert str(refused.value) == "not now"
            peers.close()

    run(body())


def test_a_peer_with_the_right_secret_cannot_speak_for_another_replica(tmp_path: Path) -> None:
    """The handshake determines whose position a fetch reports: broker 4 is no replica, so its position
    does not count."""

    async def body() -> None:
        async with nodes(tmp_path) as up:
            topic = up.store.create()
            leader = await up.wait_leader()
            await produce(up, "a")
            for node in tuple(up):
                if node is not leader:
                    await up.stop(node.broker_id, clean=False, declare=False)
            partition = leader.partition()
            high_watermark = partition.high_watermark
            partition.append(batch("b"), 1_700_000_000_000)
            end = partition.log_end_offset
            peers = Peers(_identity(4), lambda _: PeerAddress(*leader.listener.address))
            channel = peers.new_channel(leader.broker_id, "forged")
            await channel.connect()
            forged = ReplicaFetchPartition(
                topic_id=topic.topic_id,
                partition=0,
                epoch=partition.leader_epoch,
                fetch_offset=end,
                last_fetched_epoch=partition.leader_epoch,
                flushed_offset=end,
                sequence=10,
            )
            with contextlib.suppress(BrokerError):
                await channel.start(
                    REPLICA_FETCH, ReplicaFetchRequest(max_bytes=1000, partitions=[forged])
                )
            assert partition.high_watermark == high_watermark
            channel.close()

    run(body())


def test_a_follower_that_does_not_read_delays_no_other_follower(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2) as up:
            await up.start(3)
            up.store.create()
            await produce(up, "a")
            leader = await up.wait_leader()
            slow = next(node for node in up if node is not leader)
            # Everything that it sends to the leader is lost.
            hole = socket.create_server(("127.0.0.1", 0))
            slow.detours[leader.broker_id] = hole.getsockname()
            for fetcher in slow.replicas.lifecycle.router.fetchers:
                fetcher.reconnect("for the test")
            for number in range(20):
                await produce(up, f"b{number}" * 1000)
            assert slow.partition().log_end_offset < leader.partition().log_end_offset
            slow.detours.clear()
            hole.close()
            await until(
                lambda: slow.partition().log_end_offset == leader.partition().log_end_offset,
                "the slow follower has caught up",
            )
            assert up.leader() is not None

    run(body())


def test_errors_of_malformed_frames_name_the_reason() -> None:
    from zhumq.model.errors import MalformedFrame

    with pytest.raises(MalformedFrame, match="too few"):
        decode_peer_answer(b"abc")
    with pytest.raises(MalformedFrame, match="error code"):
        decode_peer_answer(struct.pack(">ih", 1, 32000))
    assert PeerApi(HelloRequest, LogEndsResponse).key == HELLO.key
    assert T0.partition == 0
