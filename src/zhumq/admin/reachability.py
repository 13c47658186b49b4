"""Checks in a few seconds that a Kafka broker answers, and names the fault if none does."""

import contextlib
import queue
import struct
import threading
import time
from typing import Final

from zhumq.admin.errors import Refused, Unavailable
from zhumq.client.dial import dial
from zhumq.model.address import Address, parse_addresses

DEFAULT_PORT: Final = 9092
REACH_TIMEOUT_SECONDS: Final = 3.0  # for one address to accept a connection
ANSWER_SECONDS_MAX: Final = 4.0  # for a broker to answer the check
GRACE_SECONDS: Final = 0.2
ANSWER_BYTES_MAX: Final = 1 << 20
# ApiVersions in version 0, which every Kafka broker answers:
# | size i32 | api key i16 | version i16 | correlation id i32 | client id: length i16, text |
_CORRELATION_ID: Final = 0x7A68756D
_API_VERSIONS_REQUEST: Final = struct.pack(">ihhih9s", 19, 18, 0, _CORRELATION_ID, 9, b"zhumq-cli")
_ANSWER_HEAD: Final = struct.Struct(">ii")  # | size i32 | correlation id i32 |


def addresses_of(bootstrap: str) -> list[Address]:
    """The addresses of a `HOST:PORT,HOST:PORT` list. Raises Refused."""
    try:
        return parse_addresses(bootstrap, default_port=DEFAULT_PORT)
    except ValueError as reason:
        raise Refused(f"bootstrap {reason}") from None


def check_reachable(bootstrap: str, *, seconds: float = ANSWER_SECONDS_MAX) -> None:
    """Raise Unavailable soon if no broker answers, where librdkafka would retry silently.

    All addresses are asked at once. One broker that answers is enough.
    """
    deadline = time.monotonic() + seconds
    asked = addresses_of(bootstrap)
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask(address: Address) -> None:
        answers.put(_fault_of(address, deadline))

    for address in asked:
        # Daemon threads: a name server that does not answer must not delay the end of the program.
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    fault: str | None = "no answer in time"
    with contextlib.suppress(queue.Empty):
        for _ in asked:
            fault = answers.get(timeout=max(deadline - time.monotonic(), 0) + GRACE_SECONDS)
            if fault is None:
                return
    raise Unavailable(f"no broker at {bootstrap} ({fault})", "start one with `zhumq start`")


def _fault_of(address: Address, deadline: float) -> str | None:
    """Why there is no Kafka broker at an address; None: there is one."""
    try:
        seconds = min(deadline - time.monotonic(), REACH_TIMEOUT_SECONDS)
        with dial([address], seconds=max(seconds, GRACE_SECONDS)) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            answer = b""
            while len(answer) < _ANSWER_HEAD.size:
                connection.settimeout(max(deadline - time.monotonic(), GRACE_SECONDS))
                chunk = connection.recv(_ANSWER_HEAD.size - len(answer))
                if not chunk:
                    return "the server closed the connection: it is no Kafka broker"
                answer += chunk
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return error.strerror or str(error)
    size, correlation_id = _ANSWER_HEAD.unpack(answer)
    if correlation_id != _CORRELATION_ID or not 0 < size <= ANSWER_BYTES_MAX:
        return "the server does not speak Kafka's protocol"
    return None
