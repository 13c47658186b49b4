"""Stuck connections are found by their peer and shut down."""

import contextlib
import socket
import threading

import pytest

from zhumq.host.sockets import close_stuck


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    return client, accepted


def fill(connection: socket.socket) -> None:
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection.send(bytes(65_536))


def test_only_a_stuck_connection_to_a_named_peer_is_cut_off() -> None:
    stuck_client, stuck = pair()
    other_client, other = pair()
    idle_client, idle = pair()
    with stuck_client, stuck, other_client, other, idle_client, idle:
        fill(stuck)
        fill(other)
        peers = {stuck_client.getsockname(), idle_client.getsockname()}
        assert close_stuck(peers) == 1
        with pytest.raises(BrokenPipeError):
            stuck.send(b"x")
        idle.sendall(b"x")
        assert idle_client.recv(1) == b"x"
        drained = threading.Thread(target=other_client.recv, args=(1,))
        drained.start()
        drained.join(10)
        assert not drained.is_alive()
