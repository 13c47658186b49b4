"""Credentials of push connections: TLS, and the user or token in the metadata of each call. Imports grpc."""

import base64
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from zhumq.client.errors import PushUnavailable, SecurityFailed, SecurityInvalid
from zhumq.client.security import ClientSecurity, TokenSource
from zhumq.client.tls import plain_key, tls_material
from zhumq.client.tokens import Token, get_token

try:
    import grpc
except ImportError as missing:
    raise PushUnavailable("push needs grpcio: pip install 'zhumq[push]'") from missing

METADATA_KEY: Final = "authorization"
TOKEN_SECONDS_MIN: Final = 30.0  # a token that expires sooner is replaced before the next call


def channel_credentials(security: ClientSecurity) -> Any:
    """The grpc.ChannelCredentials of these settings; None for plain text. Raises SecurityInvalid."""
    if not security.protocol.uses_tls:
        if security.mechanism:
            raise SecurityInvalid(
                "push sends the credentials over TLS only: set security.protocol=SASL_SSL"
            )
        return None
    if not security.checks_host:
        raise SecurityInvalid(
            "push always checks the host of the certificate: leave"
            " ssl.endpoint.identification.algorithm out, and issue a certificate for the host"
        )
    material = tls_material(security)
    identity = material.identity
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_authorities(material.authorities),
        private_key=plain_key(identity).encode() if identity else None,
        certificate_chain=identity.chain.encode() if identity else None,
    )
    if not security.mechanism:
        return credentials
    header = _Bearer(security.tokens).header if security.tokens else _basic(security)
    return grpc.composite_channel_credentials(
        credentials, grpc.metadata_call_credentials(_Plugin(header), name="zhumq")
    )


def _authorities(given: str | None) -> bytes | None:
    """gRPC comes with CAs of its own; those of the system are what the other connections trust."""
    if given is not None:
        return given.encode()
    system = ssl.get_default_verify_paths().cafile
    return Path(system).read_bytes() if system is not None and Path(system).exists() else None


def _basic(security: ClientSecurity) -> Callable[[], str]:
    if ":" in security.username:
        # RFC 7617: the first colon ends the user name.
        raise SecurityInvalid("push cannot send a user name with a colon in it")
    text = f"{security.username}:{security.password.reveal()}"
    header = f"Basic {base64.b64encode(text.encode()).decode()}"
    return lambda: header


class _Bearer:
    """The token, kept until shortly before it expires."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._token: Token | None = None

    def header(self) -> str:
        with self._lock:
            if self._token is None or self._token.expires_at - time.time() < TOKEN_SECONDS_MIN:
                self._token = get_token(self._source)
            return f"Bearer {self._token.text.reveal()}"


class _Plugin(grpc.AuthMetadataPlugin):
    """Adds the header to every call. gRPC calls it on a secure channel only."""

    def __init__(self, header: Callable[[], str]) -> None:
        self._header = header

    def __call__(self, context: Any, callback: Any) -> None:
        del context
        try:
            header = self._header()
        except SecurityFailed as error:
            callback((), error)
        else:
            callback(((METADATA_KEY, header),), None)
