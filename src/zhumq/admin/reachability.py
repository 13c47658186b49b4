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

DEFAULT_PORT: Final = 9092
REACH_TIMEOUT_SECONDS: Final = 3.0  # for one address to accept a connection
ANSWER_SECONDS_MAX: Final = 4.0  # for a broker to answer the check
GRACE_SECONDS: Final = 0.2


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
