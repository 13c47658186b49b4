"""Whether brokers refuse the security settings of a client: asked after errors, and confirmed before it counts."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from zhumq.client.errors import SecurityFailed
from zhumq.client.probe import find_refusal
from zhumq.client.refusal import RefusalWatch
from zhumq.client.security import PLAINTEXT
from zhumq.model.address import Address, parse_address

SECONDS_MAX = 30.0
ALERT = b"\x15\x03\x03\0\2\2\x46"


@contextmanager
def tls_port() -> Iterator[tuple[str, list[int]]]:
    """Answers every client as a TLS listener answers one without TLS; the list counts the clients."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients: list[int] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    stream, (_, port) = listener.accept()
                    with stream:
                        clients.append(port)
                        stream.recv(1000)
                        stream.sendall(ALERT)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", clients


def retry(watch: RefusalWatch) -> None:
    """A client that fails, and checks each time whether it is refused."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        watch.note_error()
        watch.check()


def test_a_client_without_errors_asks_nothing() -> None:
    with tls_port() as (address, clients):
        RefusalWatch(address, PLAINTEXT).check()
        assert clients == []


def test_one_refusal_is_no_proof_and_two_are() -> None:
    with tls_port() as (address, clients):
        watch = RefusalWatch(address, PLAINTEXT)
        watch.note_error()
        watch.check()
        assert len(clients) == 1
        watch.note_error()
        watch.check()  # at once: the confirmation comes a second later
        assert len(clients) == 1
        with pytest.raises(SecurityFailed, match="the port speaks TLS"):
            retry(watch)
        assert len(clients) == 2


def test_a_broker_that_is_down_refuses_nothing() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        nowhere = Address(*held.getsockname())
        assert find_refusal([nowhere], security=PLAINTEXT) is None
        with tls_port() as (address, _):
            refusal = find_refusal([nowhere, parse_address(address)], security=PLAINTEXT)
            assert "the port speaks TLS" in str(refusal)
