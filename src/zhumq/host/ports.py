"""Free ports for servers that keep their port while they are down.

The system picks the port for port 0 from the range of outgoing connections. While the server restarts, any
outgoing connection may take that port.
"""

import os
import socket
import threading
from typing import Final

HOST: Final = "127.0.0.1"
# Below the ports for outgoing connections: Linux begins at 32,768, others higher up.
FIRST: Final = 20_000
# A process has a part for itself until it ends: no other process looks for ports there, not even for those of
# its servers that are down.
PARTS: Final = 60
PORTS_OF_A_PART: Final = 200


class _Part:
    """The ports of a process. It holds the first one, and by that the part: the system releases it with the process."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._first, self._holder = _hold_a_part(self.process_id)
        # A port that was just given is the last to be given again.
        self._turn = 0

    def free_ports(self, count: int) -> list[int]:
        found: list[int] = []
        for _ in range(PORTS_OF_A_PART - 1):
            port = self._first + 1 + self._turn
            self._turn = (self._turn + 1) % (PORTS_OF_A_PART - 1)
            if _is_free(port):
                found.append(port)
            if len(found) == count:
                return found
        raise OSError(f"no {count} free ports from {self._first + 1} on")

    def leave_to_parent(self) -> None:
        """This is a forked process: the part is its parent's, also after the child has ended."""
        os.close(self._holder)


_lock = threading.Lock()
_part: _Part | None = None


def free_ports(count: int) -> list[int]:
    """Ports without a listener, which no other process is given as long as this one runs.

    Raises OSError if too few are free.
    """
    global _part  # noqa: PLW0603 (one for the process)
    with _lock:
        if _part is not None and _part.process_id != os.getpid():
            _part.leave_to_parent()
            _part = None
        if _part is None:
            _part = _Part()
        return _part.free_ports(count)


def _hold_a_part(process_id: int) -> tuple[int, int]:
    """The first port of a part that no other process has, and the descriptor that holds it."""
    for attempt in range(PARTS):
        first = FIRST + (process_id + attempt) % PARTS * PORTS_OF_A_PART
        holder = socket.socket()
        try:
            # Without SO_REUSEADDR: only one process at a time has the port, though nothing listens on it.
            holder.bind((HOST, first))
        except OSError:
            holder.close()
        else:
            return first, holder.detach()
    raise OSError(f"{PARTS} other processes have all ports from {FIRST} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As listeners do: connections in TIME_WAIT do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
