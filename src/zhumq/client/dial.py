"""Opens a TCP connection to a broker: the one place of the blocking clients where TLS belongs."""

import socket
from collections.abc import Iterable

from zhumq.model.address import Address


def dial(addresses: Iterable[Address], *, seconds: float) -> socket.socket:
    """Connect to the first address that accepts, each within so many seconds; the last error if none does."""
    failure = OSError("no address")
    for address in addresses:
        try:
            stream = socket.create_connection((address.host, address.port), timeout=seconds)
        except OSError as error:
            failure = error
        else:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
    raise failure
