"""What the listeners of a broker share: their sockets and TLS, the error when one cannot be opened."""

from typing import Final

from zhumq.broker.listener_config import ListenerConfig
from zhumq.model.errors import SettingInvalid
from zhumq.net.listener import Endpoint
from zhumq.net.tls_context import TlsSource

DRAIN_SECONDS: Final = 2.0  # how long a stop waits for answers in progress


def tls_source(listener: ListenerConfig) -> TlsSource | None:
    """The TLS contexts of a listener; None if it has no TLS. Raises SettingInvalid."""
    return None if listener.tls is None else TlsSource(listener.name, listener.tls)


def endpoint_of(listener: ListenerConfig) -> Endpoint:
    """The socket of a listener. Raises SettingInvalid if its TLS cannot be set up."""
    return Endpoint(
        host=listener.bind.host,
        port=listener.bind.port,
        name=listener.name,
        security_protocol=listener.protocol,
        tls=tls_source(listener),
    )


def cannot_listen(listener: ListenerConfig, reason: OSError) -> SettingInvalid:
    # The system's message repeats the address; the reason is its last part.
    why = (reason.strerror or str(reason)).rpartition(": ")[2]
    flag, address = listener.setting, listener.bind
    return SettingInvalid(f"cannot listen on {flag} {address}: {why}; choose another with {flag}")
