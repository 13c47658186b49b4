"""Finds the process at the other end of a local connection. Linux only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# The columns of /proc/net/tcp: index, local address, remote address, ..., inode, ...
_LOCAL: Final = 1
_REMOTE: Final = 2
_INODE: Final = 9


def owner_of(port: int, remote_port: int, candidates: Mapping[str, int]) -> str | None:
    """The name of the process among these (name to pid) that connected from `port` to
    `remote_port`; None if it is none of them, or has ended."""
    inode = _inode_of(port, remote_port)
    if inode is None:
        return None
    socket_link = f"socket:[{inode}]"
    for name, pid in candidates.items():
        if _holds(pid, socket_link):
            return name
    return None


def _inode_of(port: int, remote_port: int) -> str | None:
    local, remote = f":{port:04X}", f":{remote_port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            columns = line.split()
            if columns[_LOCAL].endswith(local) and columns[_REMOTE].endswith(remote):
                return columns[_INODE]
    return None


def _holds(pid: int, socket_link: str) -> bool:
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for file in files:
        try:
            if str(file.readlink()) == socket_link:
                return True
        except OSError:
            continue  # closed since it was listed
    return False
