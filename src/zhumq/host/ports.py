"""Free ports for servers that keep their port while they are down.

The system picks the port for port 0 from the range of outgoing connections. While the server restarts, any
outgoing connection may take that port.
"""

import itertools
import os
import socket
from typing import Final

HOST: Final = "127.0.0.1"
# Below the ports for outgoing connections: Linux begins at 32,768, others higher up.
FIRST: Final = 20_000
# Each process searches its own part, so that two processes do not find the same port.
PARTS: Final = 60
PORTS_OF_A_PART: Final = 200

_turns = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports without a listener, each returned only once. Raises OSError if too few are free."""
    begin = FIRST + os.getpid() % PARTS * PORTS_OF_A_PART
    found: list[int] = []
    for _ in range(PORTS_OF_A_PART):
        port = begin + next(_turns) % PORTS_OF_A_PART
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports from {begin} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
