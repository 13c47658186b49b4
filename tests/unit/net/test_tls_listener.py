"""A TLS listener over real sockets: handshakes, principals, large answers, and clients that misbehave."""

import asyncio
import contextlib
import os
import ssl
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from net_support import Region, ScriptedService, echo, framed
from tests.certificates import make_authority
from tls_support import Files, client_context, tls_client, tls_listening

from zhumq.model.ids import ANONYMOUS
from zhumq.net.limits import Limits
from zhumq.net.listener import Listener
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.net.tls_config import ClientAuth, Store
from zhumq.net.tls_context import TlsSource
from zhumq.security.principal_mapping import PrincipalMapping

Run = Callable[[Coroutine[Any, Any, None]], None]
MIB = 1 << 20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


class WhoService(ScriptedService):
    """Answers with the principal of the connection."""

    def __init__(self) -> None:
        super().__init__(echo)

    def handle(self, frames: object, connection: ConnectionInfo) -> tuple[int, Answer]:
        return 1, [
            framed(
                f"{connection.principal} {connection.listener} {connection.security_protocol}"
                f" {connection.is_authenticated}".encode()
            )
        ]


async def until_gone(listener: Listener) -> None:
    while listener.counters.connections_open:
        await asyncio.sleep(0)


@pytest.mark.parametrize("auth", list(ClientAuth))
def test_the_certificate_of_a_client_is_its_principal(
    run: Run, files: Files, auth: ClientAuth
) -> None:
    async def scenario() -> None:
        source = TlsSource("L", files.config(client_auth=auth))
        async with tls_listening(WhoService(), source) as listener:
            with_certificate = client_context(files.authority, files.client)
            async with tls_client(listener, with_certificate) as client:
                name = ANONYMOUS if auth is ClientAuth.NONE else "User:O=Acme,CN=alice"
                assert await client.ask(b"?") == f"{name} SECURE SSL True".encode()
            if auth is not ClientAuth.REQUIRED:
                async with tls_client(listener, client_context(files.authority)) as client:
                    assert await client.ask(b"?") == f"{ANONYMOUS} SECURE SSL True".encode()

    run(scenario())


def test_rules_map_the_name_and_a_name_that_no_rule_matches_is_refused(
    run: Run, files: Files
) -> None:
    async def scenario() -> None:
        mapping = PrincipalMapping("RULE:^.*CN=(alice)$/$1/U")
        config = files.config(client_auth=ClientAuth.REQUIRED, mapping=mapping)
        async with tls_listening(WhoService(), TlsSource("L", config)) as listener:
            context = client_context(files.authority, files.client)
            async with tls_client(listener, context) as client:
                assert (await client.ask(b"?")).startswith(b"User:ALICE ")
            unmapped = client_context(files.authority, files.broker)
            async with tls_client(listener, unmapped) as client:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await client.ask(b"?")
            await until_gone(listener)
            assert listener.counters.handshakes_failed == 1

    run(scenario())


@pytest.mark.parametrize("kind", ["none", "other CA", "expired"])
def test_a_client_without_a_valid_certificate_is_refused_where_one_is_required(
    run: Run, files: Files, kind: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        certificate = None
        if kind == "other CA":
            certificate = make_authority(tmp_path / "other").issue("alice")
        elif kind == "expired":
            certificate = files.authority.issue("late", valid_from_days=-9, valid_days=-1)
        config = files.config(client_auth=ClientAuth.REQUIRED)
        async with tls_listening(WhoService(), TlsSource("L", config)) as listener:
            context = client_context(files.authority, certificate)
            # With TLS 1.3 the client learns of it only when it reads.
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                async with tls_client(listener, context) as client:
                    await client.ask(b"?")
            while not listener.counters.handshakes_failed:
                await asyncio.sleep(0)
            assert listener.counters.connections_open == 0

    run(scenario())


def test_an_older_version_than_1_2_is_refused(run: Run, files: Files) -> None:
    async def scenario() -> None:
        async with tls_listening(ScriptedService(echo), TlsSource("L", files.config())) as listener:
            context = client_context(files.authority)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with tls_client(listener, context):
                    pass

    run(scenario())


def test_large_frames_pass_in_both_directions(run: Run, files: Files) -> None:
    async def scenario() -> None:
        async with tls_listening(ScriptedService(echo), TlsSource("L", files.config())) as listener:
            async with tls_client(listener, client_context(files.authority)) as client:
                for size in (1, 16 * 1024, 3 * MIB + 7):
                    payload = os.urandom(size)
                    assert await client.ask(payload) == payload
            await until_gone(listener)
            assert listener.memory.bytes_used == 0
            assert listener.counters.answer_bytes_queued == 0

    run(scenario())


def test_file_regions_are_encrypted_piece_by_piece(run: Run, files: Files, tmp_path: Path) -> None:
    content = os.urandom(5 * MIB + 11)
    file = tmp_path / "segment"
    file.write_bytes(content)

    async def scenario() -> None:
        with open(file, "rb") as opened:
            region = Region(file=opened, position=3, length=len(content) - 5)
            small = Region(file=opened, position=0, length=100)
            total = region.length + small.length + 4

            def answer(_frame: bytes) -> Answer:
                return [total.to_bytes(4, "big"), b"head", region, small]

            service = ScriptedService(answer)
            async with tls_listening(service, TlsSource("L", files.config())) as listener:
                context = client_context(files.authority)
                async with tls_client(listener, context) as client:
                    for _ in range(2):
                        assert await client.ask(b"?") == b"head" + content[3:-2] + content[:100]
                await until_gone(listener)
                assert listener.counters.bytes_sent_by_sendfile == 0
                assert listener.counters.answer_bytes_queued == 0

    run(scenario())


def test_a_client_that_does_not_read_holds_one_piece_of_a_region_in_memory(
    run: Run, files: Files, tmp_path: Path
) -> None:
    file = tmp_path / "segment"
    file.write_bytes(bytes(64 * MIB))

    async def scenario() -> None:
        with open(file, "rb") as opened:
            region = Region(file=opened, position=0, length=64 * MIB)
            service = ScriptedService(lambda _: [region.length.to_bytes(4, "big"), region])
            source = TlsSource("L", files.config())
            async with (
                tls_listening(service, source) as listener,
                tls_client(listener, client_context(files.authority)) as client,
            ):
                # The client's reader holds a limited part, and then its transport stops reading.
                client.writer.write(framed(b"?"))
                queued = -1
                while queued != listener.counters.answer_bytes_queued or not queued:
                    queued = listener.counters.answer_bytes_queued
                    await asyncio.sleep(0.05)
                assert queued > 32 * MIB, "most of it is still in the file"

    run(scenario())


def test_plain_bytes_on_a_tls_port_are_refused(run: Run, files: Files) -> None:
    async def scenario() -> None:
        async with tls_listening(ScriptedService(echo), TlsSource("L", files.config())) as listener:
            for data in (framed(b"an ApiVersions request, say"), b"GET / HTTP/1.1\r\n\r\n"):
                reader, writer = await asyncio.open_connection(*listener.address)
                writer.write(data)
                await reader.read()  # an alert, then the end
                writer.close()
            while listener.counters.handshakes_failed < 2:
                await asyncio.sleep(0)
            async with tls_client(listener, client_context(files.authority)) as client:
                assert await client.ask(b"still here") == b"still here"

    run(scenario())


@pytest.mark.parametrize("first_bytes", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
def test_a_handshake_that_stalls_ends_at_its_deadline(
    run: Run, files: Files, first_bytes: bytes
) -> None:
    async def scenario() -> None:
        limits = Limits(handshake_ms=200, connections_max=2)
        source = TlsSource("L", files.config())
        async with tls_listening(ScriptedService(echo), source, limits) as listener:
            writers = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*listener.address)
                writer.write(first_bytes)
                writers.append((reader, writer))
            for reader, writer in writers:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            # The two counted as connections, and no longer do.
            async with tls_client(listener, client_context(files.authority)) as client:
                assert await client.ask(b"x") == b"x"

    run(scenario())


def test_over_the_limit_of_handshakes_the_oldest_goes(run: Run, files: Files) -> None:
    async def scenario() -> None:
        source = TlsSource("L", files.config())
        limits = Limits(handshakes_max=10)
        async with tls_listening(ScriptedService(echo), source, limits) as listener:
            stalled = [await asyncio.open_connection(*listener.address) for _ in range(30)]
            async with tls_client(listener, client_context(files.authority)) as client:
                assert await client.ask(b"x") == b"x"
            assert listener.counters.handshakes_failed >= 20
            for _, writer in stalled:
                writer.close()

    run(scenario())


def test_replaced_certificates_are_shown_to_new_connections(
    run: Run, files: Files, tmp_path: Path
) -> None:
    async def scenario() -> None:
        authority = make_authority(tmp_path / "ca")
        first, second = authority.issue("one"), authority.issue("two")
        file = tmp_path / "broker.pem"
        file.write_bytes(first.combined_file.read_bytes())
        seconds = [0.0]
        source = TlsSource(
            "L",
            files.config(key_store=Store(setting="ssl.keystore.location", location=str(file))),
            clock=lambda: seconds[0],
        )
        context = client_context(authority)
        async with tls_listening(ScriptedService(echo), source) as listener:

            async def shown() -> str:
                async with tls_client(listener, context) as client:
                    await client.ask(b"x")
                    found = client.writer.get_extra_info("peercert")
                    return str(found["subject"][0][0][1])

            async with tls_client(listener, context) as open_before:
                assert await shown() == "one"
                file.write_bytes(second.combined_file.read_bytes())
                seconds[0] += 60
                assert await shown() == "two"
                assert await open_before.ask(b"goes on") == b"goes on"

    run(scenario())


def test_closing_sends_answers_in_progress_and_the_end_of_tls(run: Run, files: Files) -> None:
    async def scenario() -> None:
        answer: asyncio.Future[list[object] | None] = asyncio.get_running_loop().create_future()
        service = ScriptedService(lambda _: answer)  # type: ignore[arg-type,return-value]
        source = TlsSource("L", files.config())
        async with (
            tls_listening(service, source) as listener,
            tls_client(listener, client_context(files.authority)) as client,
        ):
            client.writer.write(framed(b"?"))
            while not service.frames:
                await asyncio.sleep(0)
            closing = asyncio.create_task(listener.close(5.0))
            await asyncio.sleep(0)
            answer.set_result([framed(b"last")])
            assert await client.read_frame() == b"last"
            assert await client.reader.read() == b""  # an end without close_notify would raise
            await closing

    run(scenario())


def test_requests_in_the_same_packet_as_the_end_of_the_handshake_are_served(
    run: Run, files: Files
) -> None:
    async def scenario() -> None:
        async with tls_listening(ScriptedService(echo), TlsSource("L", files.config())) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = client_context(files.authority).wrap_bio(
                incoming, outgoing, server_hostname="localhost"
            )
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(1 << 16))
            payload = os.urandom(200_000)
            tls.write(framed(payload))
            writer.write(outgoing.read())
            received = b""
            while len(received) < len(payload) + 4:
                try:
                    received += tls.read(1 << 20)
                except ssl.SSLWantReadError:
                    incoming.write(await reader.read(1 << 16))
            assert received == framed(payload)
            writer.transport.abort()

    run(scenario())
