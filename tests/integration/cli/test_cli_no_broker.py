"""`--bootstrap` with an address that is not a Kafka broker: every command soon fails with one line."""

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cli_support import Cli

from zhumq.admin.reachability import ANSWER_SECONDS_MAX, GRACE_SECONDS
from zhumq.cli.client import check_reachable
from zhumq.cli.options import CommandFailed
from zhumq.host.ports import free_ports
from zhumq.testing.broker import broker

COMMANDS = [
    ("topic", "list"),
    ("topic", "create", "t"),
    ("topic", "describe", "t"),
    ("topic", "alter", "t", "--set", "retention.ms=1"),
    ("topic", "delete", "t", "--yes"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "--mode", "ptp", "--group", "g"),
    ("group", "list"),
    ("group", "describe", "g"),
    ("group", "reset", "g", "--topic", "t", "--to", "earliest"),
    ("group", "delete", "g"),
    ("session", "list"),
    ("session", "resume", "s"),
    ("dlq", "list"),
    ("dlq", "show", "t"),
    ("dlq", "replay", "t"),
    ("cluster", "status"),
    ("cluster", "rebalance"),
]
AT_ONCE = 10


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.contextmanager
def silence() -> Iterator[str]:
    """An address where the system accepts connections and no program reads from them."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def closed() -> Iterator[str]:
    yield f"127.0.0.1:{free_ports(1)[0]}"


PLACES = {
    "web server": (web_server, "no Kafka broker|does not speak Kafka|no answer in time"),
    "silence": (silence, "no answer in time"),
    "closed": (closed, "Connection refused"),
}


def test_an_answer_that_is_not_kafkas_is_reported_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(CommandFailed, match="does not speak Kafka's protocol"):
            check_reachable(f"127.0.0.1:{listener.getsockname()[1]}")


def test_the_longest_wait_is_below_five_seconds() -> None:
    assert ANSWER_SECONDS_MAX + 2 * GRACE_SECONDS < 5


@pytest.mark.parametrize("place", PLACES)
def test_an_address_without_a_broker_fails_with_one_line(place: str) -> None:
    where, why = PLACES[place]
    with (
        where() as address,
        pytest.raises(CommandFailed, match=f"no broker at {address} .*({why})"),
    ):
        check_reachable(address)


def test_one_broker_of_several_addresses_is_enough() -> None:
    with broker() as running, silence() as silent, closed() as unused:
        check_reachable(f"{unused},{silent},{running.bootstrap}")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_command_fails_in_one_line(place: str) -> None:
    where, _ = PLACES[place]
    with where() as address, ThreadPoolExecutor(AT_ONCE) as pool:
        cli = Cli(address)
        lines = list(pool.map(lambda words: cli.fails(*words), COMMANDS))
    assert all(line.startswith(f"zhumq: no broker at {address} (") for line in lines), lines
