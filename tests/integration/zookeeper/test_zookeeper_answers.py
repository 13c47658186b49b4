"""Answers of ZooKeeper that do not come, that come out of order, or that say that the session is over."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Self

import pytest
from zookeeper_support import (
    SESSION_MS,
    SessionStates,
    broker,
    change,
    close_all,
    open_store,
    topic_created,
    wait_for,
)

from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.cluster.store import SessionState
from zhumq.cluster.znodes import ConnectionLost, Delete, LinkState, SessionOver
from zhumq.cluster.zookeeper_client import ZookeeperClient
from zhumq.cluster.zookeeper_layout import live_path
from zhumq.metadata.changes import BrokerGone
from zhumq.model.ids import BrokerId

REQUESTS_PAUSE_SECONDS: Final = 0.02  # far more often than kazoo sends pings
SESSION_EXPIRED: Final = -112  # ZooKeeper's error code


class Line:
    """A proxy to a server that drops answers, or answers on open connections that the session is over."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: set[asyncio.Task[None]] = set()
        self._over: set[asyncio.Task[None]] = set()
        self.drops = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def end_session(self) -> None:
        """From now on every request on the open connections is answered with an error."""
        self._over |= self._connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [
            asyncio.create_task(_pipe(reader, their_writer)),
            asyncio.create_task(self._answer(task, their_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(task)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, their_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _answer(
        self,
        connection: "asyncio.Task[None]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            # The answer to the session request has no number.
            writer.write(await _frame(reader))
            while True:
                frame = await _frame(reader)
                is_of_request = int.from_bytes(frame[4:8], "big", signed=True) > 0
                if is_of_request and self.drops:
                    self.drops -= 1
                elif is_of_request and connection in self._over:
                    writer.write(_session_expired(frame))
                else:
                    writer.write(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def _session_expired(frame: bytes) -> bytes:
    # | length int32 | number of the request int32 | zxid int64 | error int32 |
    body = frame[4:16] + SESSION_EXPIRED.to_bytes(4, "big", signed=True)
    return len(body).to_bytes(4, "big") + body


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


async def connected(address: str, links: list[LinkState]) -> ZookeeperClient:
    client = await ZookeeperClient.connect(
        address,
        session_timeout_ms=SESSION_MS,
        connect_ms_max=30_000,
        on_link=lambda state, _session: links.append(state),
    )
    await wait_for(lambda: links == [LinkState.CONNECTED])
    return client


async def keep_asking(client: ZookeeperClient) -> None:
    """Send requests all the time, without waiting for their answers: as a broker with much to do."""

    async def ask() -> None:
        with contextlib.suppress(ConnectionLost, SessionOver):
            await client.exists("/")

    async with asyncio.TaskGroup() as asking:
        while True:
            asking.create_task(ask())
            await asyncio.sleep(REQUESTS_PAUSE_SECONDS)


@contextlib.asynccontextmanager
async def asked_all_the_time(client: ZookeeperClient) -> AsyncIterator[None]:
    asking = asyncio.ensure_future(keep_asking(client))
    try:
        yield
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


def test_a_connection_without_answers_is_given_up_however_often_requests_are_sent(
    zookeeper: DevZookeeper,
) -> None:
    async def scenario() -> None:
        links: list[LinkState] = []
        client = await connected(zookeeper.connect, links)
        (node,) = zookeeper.nodes
        async with asked_all_the_time(client):
            node.pause()
            try:
                await wait_for(lambda: LinkState.SUSPENDED in links, "the end of the connection")
            finally:
                node.resume()
            await wait_for(lambda: links[-1] is LinkState.CONNECTED, "a new connection")
        assert await client.exists("/")
        await client.close()

    asyncio.run(scenario())


# kazoo's thread ends with this error, which the test provokes.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_recovers_from_answers_out_of_order(zookeeper: DevZookeeper) -> None:
    async def scenario() -> None:
        async with Line(zookeeper.nodes[0].port) as line:
            links: list[LinkState] = []
            client = await connected(line.address, links)
            for _ in range(2):
                line.drops = 1
                # The answer to the second request arrives instead of the first one.
                asked = (client.exists("/"), client.exists("/zookeeper"))
                for answer in await asyncio.gather(*asked, return_exceptions=True):
                    assert isinstance(answer, ConnectionLost | SessionOver)
                await wait_for(lambda: LinkState.LOST in links, "the session to be given up")
                await wait_for(lambda: links[-1] is LinkState.CONNECTED, "another session")
                links.clear()
            assert await client.exists("/")
            await client.close()

    asyncio.run(scenario())


def test_a_broker_keeps_its_session_when_an_answer_is_lost(
    zookeeper: DevZookeeper, chroot: str
) -> None:
    async def scenario() -> None:
        async with Line(zookeeper.nodes[0].port) as line:
            other = await open_store(chroot)
            store = await open_store(f"{line.address}/{chroot.partition('/')[2]}")
            await store.register(broker(1))
            states = SessionStates(store)
            epoch = store.broker_epoch
            for name in ("first", "second"):
                line.drops = 1
                await change(store, topic_created(name))  # Carried out once, though tried twice.
                await wait_for(lambda name=name: name in other.image.topics)
                assert SessionState.SUSPENDED in states
                await wait_for(lambda: states[-1] is SessionState.CONNECTED)
                states.clear()
            assert store.broker_epoch == epoch
            await close_all([store, other])

    asyncio.run(scenario())


def test_a_broker_connects_again_when_its_session_is_over_and_its_connection_is_not(
    zookeeper: DevZookeeper, chroot: str
) -> None:
    async def scenario() -> None:
        async with Line(zookeeper.nodes[0].port) as line:
            other = await open_store(chroot)
            store = await open_store(f"{line.address}/{chroot.partition('/')[2]}")
            await store.register(broker(1))
            line.end_session()
            await change(store, topic_created("again"))
            await wait_for(lambda: "again" in other.image.topics)
            await wait_for(lambda: store.session is SessionState.CONNECTED)
            await close_all([store, other])

    asyncio.run(scenario())


def test_a_broker_that_the_others_have_removed_registers_again(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        await store.register(broker(1))
        before = store.broker_epoch
        assert before is not None
        # As if the session had ended and this broker had not noticed.
        client = await connected(chroot, [])
        await client.multi([Delete(path=live_path(BrokerId(1)))])
        await client.close()
        await change(other, BrokerGone(broker_id=BrokerId(1)))
        await wait_for(lambda: (store.broker_epoch or 0) > before)

        def is_registered() -> bool:
            found = other.image.brokers.get(BrokerId(1))
            return found is not None and found.epoch == store.broker_epoch

        await wait_for(is_registered)
        assert store.session is SessionState.CONNECTED
        await close_all([store, other])

    asyncio.run(scenario())
