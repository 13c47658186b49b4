"""Checks in a few seconds that a Kafka broker answers, and names the fault if none does."""

import contextlib
import queue
import threading
import time
from typing import Final

from zhumq.admin.errors import Refused, Unavailable
from zhumq.client.errors import ClientError
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.address import Address, parse_addresses
from zhumq.model.errors import MalformedFrame

DEFAULT_PORT: Final = 9092
REACH_TIMEOUT_SECONDS: Final = 3.0  # for one address to accept a connection
ANSWER_SECONDS_MAX: Final = 4.0  # for a broker to answer the check
GRACE_SECONDS: Final = 0.2
_CHECK_ID: Final = "zhumq-probe"


def addresses_of(bootstrap: str) -> list[Address]:
    """The addresses of a `HOST:PORT,HOST:PORT` list. Raises Refused."""
    try:
        return parse_addresses(bootstrap, default_port=DEFAULT_PORT)
    except ValueError as reason:
        raise Refused(f"bootstrap {reason}") from None


def check_reachable(
    bootstrap: str,
    *,
    seconds: float = ANSWER_SECONDS_MAX,
    security: ClientSecurity = PLAINTEXT,
) -> None:
    """Raise Unavailable soon if no broker answers, where librdkafka would retry silently.

    All addresses are asked at once. One broker that answers is enough. Raises SecurityFailed if the brokers
    refuse the security settings.
    """
    deadline = time.monotonic() + seconds
    asked = addresses_of(bootstrap)
    answers: queue.SimpleQueue[str | ClientError | None] = queue.SimpleQueue()

    def ask(address: Address) -> None:
        try:
            answers.put(_fault_of(address, deadline, security))
        except ClientError as error:
            answers.put(error)

    for address in asked:
        # Daemon threads: a name server that does not answer must not delay the end of the program.
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    fault: str | ClientError | None = "no answer in time"
    refusal: ClientError | None = None
    with contextlib.suppress(queue.Empty):
        for _ in asked:
            fault = answers.get(timeout=max(deadline - time.monotonic(), 0) + GRACE_SECONDS)
            if fault is None:
                return
            if isinstance(fault, ClientError):
                refusal = fault
    if refusal is not None:
        raise refusal
    raise Unavailable(f"no broker at {bootstrap} ({fault})", "start one with `zhumq start`")


def check_answers(
    bootstrap: str, *, security: ClientSecurity = PLAINTEXT, seconds: float = ANSWER_SECONDS_MAX
) -> None:
    """Raise Unavailable if no broker says which requests it knows, which it says to clients without credentials, too.

    Raises SecurityFailed if TLS cannot be agreed on with one.
    """
    # Imported here: the codecs take time to load.
    from zhumq.client.wire import BrokerUnusable, Connection  # noqa: PLC0415

    try:
        with Connection.open(
            addresses_of(bootstrap),
            client_id=_CHECK_ID,
            connect_seconds=min(seconds, REACH_TIMEOUT_SECONDS),
            request_seconds=seconds,
            security=security,
        ) as connection:
            connection.negotiate()
    except (OSError, MalformedFrame, BrokerUnusable) as reason:
        raise Unavailable(f"no broker at {bootstrap} ({reason})") from reason


def _fault_of(address: Address, deadline: float, security: ClientSecurity) -> str | None:
    """Why there is no Kafka broker at an address; None: there is one."""
    # Imported here: the codecs take time to load, and not every command needs them.
    from zhumq.client.probe import probe  # noqa: PLC0415

    try:
        left = deadline - time.monotonic()
        seconds = max(min(left, REACH_TIMEOUT_SECONDS), GRACE_SECONDS)
        probe(address, security=security, seconds=seconds)
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return error.strerror or str(error)
    return None
