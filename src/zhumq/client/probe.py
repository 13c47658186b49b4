"""Asks a broker one question over a connection of its own, and tells why the security settings do not fit."""

import ssl
from collections.abc import Iterable
from typing import Final

from zhumq.client.dial import NO_TLS, HandshakeEnded, dial
from zhumq.client.errors import SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.client.wire import ONLY_TLS, BrokerUnusable, Connection
from zhumq.model.address import Address
from zhumq.model.errors import MalformedFrame
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest

CLIENT_ID: Final = "zhumq-probe"
ADDRESSES_MAX: Final = 3  # asked for a refusal
SECONDS_MAX: Final = 2.0  # for each of them


class NotKafka(ConnectionError):
    """The server at the address closed the connection, or does not speak Kafka's protocol."""


def probe(address: Address, *, security: ClientSecurity, seconds: float) -> None:
    """Connect, authenticate, and ask a request that needs no rights.

    Raises SecurityFailed, SecurityInvalid, OSError, or NotKafka, which is one.
    """
    answered = False
    try:
        with Connection.open(
            [address],
            client_id=CLIENT_ID,
            connect_seconds=seconds,
            request_seconds=seconds,
            security=security,
        ) as connection:
            connection.negotiate()
            answered = True
            # A listener with SASL answers ApiVersions to every client, and closes on the next request.
            connection.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
    except (MalformedFrame, BrokerUnusable):
        raise NotKafka("the server does not speak Kafka's protocol") from None
    except HandshakeEnded as error:
        if _speaks_plain_kafka(address, seconds):
            raise SecurityFailed(NO_TLS) from None
        raise SecurityFailed(str(error)) from None
    except (ConnectionAbortedError, ConnectionResetError):
        if not answered and not security.protocol.uses_tls and speaks_tls(address, seconds):
            raise SecurityFailed(ONLY_TLS) from None
        if answered and not security.mechanism:
            secured = "SASL_SSL" if security.protocol.uses_tls else "SASL_PLAINTEXT or SASL_SSL"
            raise SecurityFailed(
                "the broker closed the connection after its first answer: if the listener uses SASL, set"
                f" security.protocol={secured}"
            ) from None
        raise NotKafka("the server closed the connection: it is no Kafka broker") from None


def speaks_tls(address: Address, seconds: float) -> bool:
    """Whether a server answers a TLS handshake; who it is does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with dial([address], seconds=seconds, tls=context):
            return True
    except SecurityFailed as error:
        return NO_TLS not in str(error)
    except OSError:
        return False


def _speaks_plain_kafka(address: Address, seconds: float) -> bool:
    try:
        with Connection.open(
            [address], client_id=CLIENT_ID, connect_seconds=seconds, request_seconds=seconds
        ) as connection:
            connection.negotiate()
    except (OSError, SecurityFailed, MalformedFrame):
        return False
    return True


def find_refusal(
    addresses: Iterable[Address], *, security: ClientSecurity
) -> SecurityFailed | None:
    """Why no broker accepts these security settings; None: one does, or none answers at all."""
    refusal: SecurityFailed | None = None
    for address in list(addresses)[:ADDRESSES_MAX]:
        try:
            probe(address, security=security, seconds=SECONDS_MAX)
        except SecurityFailed as error:
            refusal = refusal or error
        except OSError:
            continue
        else:
            return None
    return refusal
