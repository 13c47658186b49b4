"""Free ports for servers that keep theirs while they are down.

A port that the system itself picks (port 0) is one of those it gives to outgoing connections, too: while its
server is restarted, anybody's connection may take it.
"""

import itertools
import os
import socket
from typing import Final

HOST: Final = "127.0.0.1"
# Below the ports for outgoing connections: Linux begins at 32,768, others higher up.
FIRST: Final = 20_000
# Every process looks in a part of its own, so that two that look at once do not find the same.
PARTS: Final = 60
PORTS_OF_A_PART: Final = 200

_turns = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens, not those given before. Raises OSError where there are none."""
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
