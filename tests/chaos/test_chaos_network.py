"""The network of a chaos run: links are cut, refused, slowed and healed, each direction separately."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from chaos.network import (
    CHUNK_BYTES,
    CHUNKS_ON_THE_WAY_MAX,
    CUT,
    HOST,
    OPEN,
    REFUSED,
    Link,
    Network,
)
from chaos.socket_owner import owner_of

SECONDS_MAX = 20.0
SEND_SECONDS = 0.2  # a full buffer does not empty by itself


class Echo:
    """A server that sends back what it receives, and keeps it."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.received = bytearray()
        self.ends = 0
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def wait_until_received(self, data: bytes) -> None:
        wait_for(lambda: bytes(self.received) == data)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(CHUNK_BYTES):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                pass
        self.ends += 1


def wait_for(fact) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not fact():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.fixture
def network() -> Iterator[Network]:
    running = Network.start()
    yield running
    running.stop()


@pytest.fixture
def echo(network: Network) -> Iterator[Echo]:
    # The server closes before the network does, so its connections have to be reset first.
    server = Echo()
    yield server
    network.set_link("a", "b", REFUSED)
    server.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), SECONDS_MAX)


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def has_ended(connection: socket.socket) -> bool:
    """Whether the other side closes or resets the connection without sending a byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def pass_elsewhere(network: Network) -> None:
    """Send bytes both ways over open links. The network is one thread: it has then handled everything
    that came before them."""
    server = Echo()
    proxy = network.open_proxy("other", server.port, source="another")
    for _ in range(2):
        with connect(proxy.port) as client:
            client.sendall(b"here")
            assert read(client, 4) == b"here"
    server.close()


def assert_quiet(network: Network, connection: socket.socket) -> None:
    pass_elsewhere(network)
    connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        connection.recv(1)
    connection.settimeout(SECONDS_MAX)


def test_bytes_pass_an_open_proxy_both_ways(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as client:
        message = os.urandom(3 * CHUNK_BYTES)
        sender = threading.Thread(target=client.sendall, args=(message,))
        sender.start()
        assert read(client, len(message)) == message
        sender.join()


def test_nothing_passes_a_cut_link_until_it_heals(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        network.set_link("a", "b", CUT)
        assert network.links() == {("a", "b"): CUT}
        client.sendall(b"two")
        assert_quiet(network, client)
        assert echo.received == b"one"
        network.heal()
        assert read(client, 3) == b"two"
        assert network.links() == {}


def test_a_link_cut_one_way_lets_the_other_way_pass(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        network.set_link("b", "a", CUT)
        client.sendall(b"two")
        echo.wait_until_received(b"onetwo")
        assert_quiet(network, client)
        network.set_link("b", "a", OPEN)
        assert read(client, 3) == b"two"


def request(api_key: int, body: bytes, version: int = 5) -> bytes:
    return struct.pack(">ihh", len(body) + 4, api_key, version) + body


def test_a_delayed_request_arrives_after_its_client_has_gone_and_the_next_has_come(
    network: Network, echo: Echo
) -> None:
    delayed, prompt = request(26, b"first"), request(3, b"second")
    proxy = network.open_proxy(
        "b",
        echo.port,
        source="a",
        delay_of=lambda key, version: 1.0 if (key, version) == (26, 5) else 0.0,
    )
    with connect(proxy.port) as client:
        client.sendall(delayed)
    with connect(proxy.port) as client:
        client.sendall(prompt)
        assert read(client, len(prompt)) == prompt
        assert echo.received == prompt
    echo.wait_until_received(prompt + delayed)


def test_requests_behind_a_delayed_one_wait_and_half_a_request_never_arrives(
    network: Network, echo: Echo
) -> None:
    delayed, prompt = request(0, b"first"), request(3, b"second")
    proxy = network.open_proxy(
        "b", echo.port, source="a", delay_of=lambda key, _version: 0.2 if key == 0 else 0.0
    )
    with connect(proxy.port) as client:
        client.sendall(delayed + prompt + prompt[:-1])
        assert read(client, len(delayed + prompt)) == delayed + prompt
    wait_for(lambda: echo.ends == 1)
    assert echo.received == delayed + prompt


def test_only_the_named_pair_is_cut(network: Network, echo: Echo) -> None:
    from_a = network.open_proxy("b", echo.port, source="a")
    from_c = network.open_proxy("b", echo.port, source="c")
    network.set_link("a", "b", CUT)
    with connect(from_a.port) as cut, connect(from_c.port) as well:
        cut.sendall(b"lost")
        well.sendall(b"fine")
        assert read(well, 4) == b"fine"
        assert_quiet(network, cut)


def test_a_connection_made_over_a_cut_link_is_silent(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    network.set_link("b", "a", CUT)
    with connect(proxy.port) as client:
        client.sendall(b"hello")
        assert_quiet(network, client)
        assert echo.received == b""
        network.heal()
        assert read(client, 5) == b"hello"


def test_the_end_of_a_connection_does_not_pass_a_cut_link(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        network.set_link("a", "b", CUT)
    pass_elsewhere(network)
    assert echo.ends == 0
    network.heal()
    wait_for(lambda: echo.ends == 1)


def test_a_refused_link_ends_connections_and_takes_no_new_ones(
    network: Network, echo: Echo
) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        network.set_link("a", "b", REFUSED)
        assert has_ended(client)
    wait_for(lambda: echo.ends == 1)
    with connect(proxy.port) as refused:
        assert has_ended(refused)
    network.heal()
    with connect(proxy.port) as again:
        again.sendall(b"two")
        assert read(again, 3) == b"two"


def test_a_delay_keeps_every_byte_in_order(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    network.set_link("a", "b", Link(delay_ms=50))
    with connect(proxy.port) as client:
        started = time.monotonic()
        for number in range(20):
            client.sendall(b"%02d" % number)
        assert read(client, 40) == b"".join(b"%02d" % number for number in range(20))
        # Not an upper bound, which the machine's load could break.
        assert time.monotonic() - started >= 0.05


def test_a_cut_link_holds_a_bounded_number_of_bytes(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    network.set_link("a", "b", CUT)
    with connect(proxy.port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK_BYTES)
        client.settimeout(SEND_SECONDS)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(8 * CHUNK_BYTES * CHUNKS_ON_THE_WAY_MAX))


def test_a_target_that_is_down_closes_the_caller(network: Network) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
    proxy = network.open_proxy("b", port, source="a")
    with connect(proxy.port) as client:
        assert has_ended(client)


def test_a_proxy_that_is_shut_refuses_and_keeps_its_port(network: Network, echo: Echo) -> None:
    proxy = network.open_proxy("b", echo.port, source="a")
    with connect(proxy.port) as before:
        before.sendall(b"one")
        assert read(before, 3) == b"one"
        network.shut("b")
        with pytest.raises(ConnectionRefusedError):
            connect(proxy.port)
        # Existing connections stay open.
        before.sendall(b"two")
        assert read(before, 3) == b"two"
        network.reopen("b")
        with connect(proxy.port) as after:
            after.sendall(b"three")
            assert read(after, 5) == b"three"


CALLER = """
import socket, sys
sys.stdin.readline()
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"from the other process")
sys.stdin.read()
"""


def test_callers_of_a_common_proxy_are_identified_by_their_process(
    network: Network, echo: Echo
) -> None:
    pids = {"c": os.getpid()}
    proxy = network.open_common_proxy("b", echo.port, lambda: dict(pids))
    network.set_link("c", "b", CUT)
    command = [sys.executable, "-c", CALLER, str(proxy.port)]
    with connect(proxy.port) as cut, subprocess.Popen(command, stdin=subprocess.PIPE) as caller:
        pids["a"] = caller.pid
        cut.sendall(b"held back")
        assert caller.stdin is not None
        caller.stdin.write(b"call now\n")
        caller.stdin.flush()
        echo.wait_until_received(b"from the other process")
        assert_quiet(network, cut)


def test_a_caller_of_an_unknown_process_is_disconnected(network: Network, echo: Echo) -> None:
    proxy = network.open_common_proxy("b", echo.port, dict)
    with connect(proxy.port) as unknown:
        assert has_ended(unknown)
    assert network.unknown_callers == 1


def test_the_owner_of_a_socket_is_found_among_processes(echo: Echo) -> None:
    with connect(echo.port) as client:
        port = client.getsockname()[1]
        here = {"other": 1, "this": os.getpid()}
        assert owner_of(port, echo.port, here) == "this"
        assert owner_of(port, echo.port, {"gone": 2**22 - 1}) is None
    assert owner_of(1, 2, here) is None
