"""TLS settings with the certificates of a test, and clients that shake hands."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from net_support import framed
from tests.certificates import Authority, Certificate, make_authority

from zhumq.model.security_protocol import SecurityProtocol
from zhumq.net.limits import Limits
from zhumq.net.listener import Endpoint, Listener
from zhumq.net.service import Service
from zhumq.net.tls_config import Store, TlsConfig
from zhumq.net.tls_context import TlsSource


class Files:
    """A CA, a certificate of a broker and one of a client."""

    def __init__(self, folder: Path) -> None:
        self.authority = make_authority(folder / "ca")
        self.broker = self.authority.issue("broker")
        self.client = self.authority.issue("alice", organization="Acme")

    def config(self, **changes: object) -> TlsConfig:
        config = TlsConfig(
            key_store=Store(
                setting="ssl.keystore.location", location=str(self.broker.combined_file)
            ),
            trust_store=Store(
                setting="ssl.truststore.location", location=str(self.authority.certificate_file)
            ),
        )
        return replace(config, **changes)  # type: ignore[arg-type]


def client_context(authority: Authority, certificate: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate_file))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
    return context


@asynccontextmanager
async def tls_listening(
    service: Service, source: TlsSource, limits: Limits | None = None
) -> AsyncIterator[Listener]:
    endpoint = Endpoint(
        host="127.0.0.1",
        port=0,
        name="SECURE",
        security_protocol=SecurityProtocol.SSL,
        tls=source,
    )
    async with await Listener.open(endpoint, service=service, limits=limits) as listener:
        yield listener


@asynccontextmanager
async def tls_client(listener: Listener, context: ssl.SSLContext) -> AsyncIterator["TlsClient"]:
    reader, writer = await asyncio.open_connection(
        *listener.address, ssl=context, server_hostname="localhost", limit=1 << 20
    )
    try:
        yield TlsClient(reader, writer)
    finally:
        writer.transport.abort()


class TlsClient:
    """Sends and reads frames over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def ask(self, payload: bytes) -> bytes:
        self.writer.write(framed(payload))
        return await self.read_frame()
