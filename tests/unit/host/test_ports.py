"""Free ports for servers that restart on the same port."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from zhumq.host.ports import FIRST, HOST, PARTS, PORTS_OF_A_PART, free_ports

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_free_and_not_given_twice() -> None:
    ports = [*free_ports(3), *free_ports(2)]
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as server:
            server.bind((HOST, port))


def test_a_port_in_use_is_not_given() -> None:
    with socket.socket() as server:
        (taken,) = free_ports(1)
        server.bind((HOST, taken))
        server.listen()
        everything = free_ports(PORTS_OF_A_PART // 2) + free_ports(PORTS_OF_A_PART // 2)
        assert taken not in everything


def test_processes_that_look_at_once_find_different_ones() -> None:
    program = "from zhumq.host.ports import free_ports; print(*free_ports(3))"
    looking = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    found = [set(each.communicate(timeout=30)[0].split()) for each in looking]
    assert len(found[0] | found[1]) == 6


def test_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(OSError, match="no 201 free ports"):
        free_ports(PORTS_OF_A_PART + 1)


@pytest.mark.skipif(not OUTGOING.exists(), reason="a setting of Linux")
def test_no_outgoing_connection_is_given_such_a_port() -> None:
    first_outgoing = int(OUTGOING.read_text().split()[0])
    if first_outgoing < FIRST:
        pytest.skip("this machine gives all ports to outgoing connections")
    assert first_outgoing >= FIRST + PARTS * PORTS_OF_A_PART
