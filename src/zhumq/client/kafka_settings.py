"""The security of a client as librdkafka's settings."""

from collections.abc import Callable
from typing import Any

from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import ClientSecurity, TokenSource
from zhumq.client.tls import CERTIFICATE_BEGIN, tls_material
from zhumq.client.tokens import get_token
from zhumq.model.security_protocol import SecurityProtocol


def security_settings(security: ClientSecurity) -> dict[str, Any]:
    """librdkafka's settings for these connections; empty for plain text. Raises SecurityInvalid."""
    if security.protocol is SecurityProtocol.PLAINTEXT:
        return {}
    settings: dict[str, Any] = {"security.protocol": str(security.protocol)}
    if security.tokens is not None:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "oauth_cb": _oauth_callback(security.tokens),
        }
    elif security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password.reveal(),
        }
    if security.protocol.uses_tls:
        settings |= _tls_settings(security)
    return settings


def _tls_settings(security: ClientSecurity) -> dict[str, Any]:
    material = tls_material(security)
    settings: dict[str, Any] = {
        "ssl.endpoint.identification.algorithm": "https" if security.checks_host else "none"
    }
    if material.authorities is not None:
        settings["ssl.ca.pem"] = material.authorities
    identity = material.identity
    if identity is None:
        return settings
    if identity.key_password:
        settings["ssl.key.password"] = identity.key_password.reveal()
    if identity.chain_location:
        settings["ssl.certificate.location"] = identity.chain_location
        settings["ssl.key.location"] = identity.key_location
        return settings
    if identity.chain.count(CERTIFICATE_BEGIN) > 1:
        # librdkafka sends the first certificate of a text or of a PKCS#12 file, and no intermediate ones.
        raise SecurityInvalid(
            "a client certificate with intermediate ones has to be in PEM files: set"
            " ssl.certificate.location and ssl.key.location"
        )
    return settings | {
        "ssl.certificate.pem": identity.chain,
        "ssl.key.pem": identity.key.reveal(),
    }


def _oauth_callback(source: TokenSource) -> Callable[[str], tuple[Any, ...]]:
    def refresh(_config: str) -> tuple[Any, ...]:
        token = get_token(source)
        return token.text.reveal(), token.expires_at, token.subject, dict(source.extensions)

    return refresh
