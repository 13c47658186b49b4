"""Free ports for servers that restart on the same port."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhumq.host.ports import FIRST, HOST, PARTS, PORTS_OF_A_PART, free_ports

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Prints the ports, and holds them until its input ends.
LOOK = """
import sys
from zhumq.host.ports import free_ports
print(*free_ports(3), flush=True)
sys.stdin.read()
"""


def part_of(port: int) -> int:
    return (port - FIRST) // PORTS_OF_A_PART


@contextlib.contextmanager
def looking(program: str = LOOK) -> Iterator[set[int]]:
    """Another process that has looked for ports, and still runs."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield set(map(int, process.stdout.readline().split()))


def test_ports_are_free_and_not_given_twice() -> None:
    ports = [*free_ports(3), *free_ports(2)]
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as server:
            # As servers do: a server of an earlier test may have left packets on their way.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((HOST, port))


def test_a_port_in_use_is_not_given() -> None:
    with socket.socket() as server:
        (taken,) = free_ports(1)
        server.bind((HOST, taken))
        server.listen()
        everything = free_ports(PORTS_OF_A_PART // 2) + free_ports(PORTS_OF_A_PART // 2 - 2)
        assert taken not in everything


def test_a_port_of_a_server_that_has_ended_is_given_again_after_all_others() -> None:
    (port,) = free_ports(1)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOST, port))
        server.listen()
        with socket.create_connection((HOST, port)):
            server.accept()[0].close()  # The server's side waits for late packets: TIME_WAIT.
    # One at a time: brokers of other tests in this process may hold some.
    next_ones = [free_ports(1)[0] for _ in range(PORTS_OF_A_PART // 2)]
    assert port not in next_ones
    assert port in [free_ports(1)[0] for _ in range(PORTS_OF_A_PART)]


def test_processes_that_run_at_once_have_ports_of_their_own() -> None:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(looking()) for _ in range(3)]
        assert all(len(each) == 3 for each in found)
        parts = [{part_of(port) for port in each} for each in (*found, set(free_ports(3)))]
        assert len(set.union(*parts)) == len(parts)


def test_a_process_passes_over_a_part_that_another_has() -> None:
    mine = part_of(free_ports(1)[0])
    begins_there = f"import os\nos.getpid = lambda: {mine}\n{LOOK}"
    with looking(begins_there) as ports:
        assert len(ports) == 3
        assert mine not in map(part_of, ports)


def test_a_forked_process_has_ports_of_its_own() -> None:
    program = """
import os
from zhumq.host.ports import free_ports
parent = free_ports(1)[0]
if os.fork() == 0:
    print(free_ports(1)[0], flush=True)
    os._exit(0)
os.wait()
print(parent, *free_ports(1))
"""
    printed = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    forked, before, after = map(int, printed.split())
    assert part_of(forked) != part_of(before) == part_of(after)


def test_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(OSError, match="no 200 free ports"):
        free_ports(PORTS_OF_A_PART)


@pytest.mark.skipif(not OUTGOING.exists(), reason="a setting of Linux")
def test_no_outgoing_connection_is_given_such_a_port() -> None:
    first_outgoing = int(OUTGOING.read_text().split()[0])
    if first_outgoing < FIRST:
        pytest.skip("this machine gives all ports to outgoing connections")
    assert first_outgoing >= FIRST + PARTS * PORTS_OF_A_PART
