"""Opens a TCP or TLS connection to a broker: the one place of the blocking clients that does."""

import socket
import ssl
from collections.abc import Iterable
from typing import Final

from zhumq.client.errors import SecurityFailed
from zhumq.model.address import Address

NO_TLS: Final = "the port does not speak TLS: set security.protocol=PLAINTEXT or SASL_PLAINTEXT"
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_CERTIFICATE_REFUSED: Final = frozenset(
    {
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
    }
)


class HandshakeEnded(ConnectionError):
    """The server closed the connection instead of answering the TLS handshake."""


def dial(
    addresses: Iterable[Address], *, seconds: float, tls: ssl.SSLContext | None = None
) -> socket.socket:
    """Connect to the first address that accepts, each within so many seconds; the last error if none does.

    Raises SecurityFailed, and tries no further address, if the two sides cannot agree on TLS.
    """
    failure = OSError("no address")
    for address in addresses:
        try:
            stream = socket.create_connection((address.host, address.port), timeout=seconds)
        except OSError as error:
            failure = error
            continue
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return stream
        try:
            return tls.wrap_socket(stream, server_hostname=address.host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
            # A broker that stops ends a handshake, too: trying again may help.
            failure = HandshakeEnded(
                f"{address} ended the TLS handshake: is security.protocol right for this port?"
            )
        except ssl.SSLError as error:
            stream.close()
            raise SecurityFailed(f"no TLS with {address}: {tls_reason(error)}") from None
        except OSError as error:
            failure = error
        stream.close()
    raise failure


def tls_reason(error: ssl.SSLError, *, has_certificate: bool = True) -> str:
    """Why there is no TLS, and what to do. `has_certificate`: the client has shown one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = error.verify_message
        is_other_host = "hostname" in cause.lower() or "ip address" in cause.lower()
        advice = (
            "connect to a name of the certificate, or issue one for this host"
            if is_other_host
            else "set ssl.truststore.location to the CA of the cluster"
        )
        return f"the broker's certificate is not trusted ({cause}): {advice}"
    alert = (error.reason or "").replace("_", " ").lower()
    if error.reason in _NOT_TLS:
        return NO_TLS
    if error.reason in _CERTIFICATE_REFUSED and not has_certificate:
        return f"the broker wants a client certificate ({alert}): set ssl.keystore.location"
    if error.reason in _CERTIFICATE_REFUSED:
        return f"the broker does not trust the client's certificate ({alert})"
    return alert or str(error)
