"""Which process holds the other end of a connection on this machine. Linux only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# The columns of /proc/net/tcp: place, local address, remote address, ..., inode, ...
_LOCAL: Final = 1
_REMOTE: Final = 2
_INODE: Final = 9


def owner_of(port: int, remote_port: int, candidates: Mapping[str, int]) -> str | None:
    """The name of the process among these (name to pid) that connected from `port` to
    `remote_port`; None if it is none of them, or is gone already."""
    inode = _inode_of(port, remote_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for name, pid in candidates.items():
        if _holds(pid, wanted):
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


def _holds(pid: int, wanted: str) -> bool:
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for file in files:
        try:
            if str(file.readlink()) == wanted:
                return True
        except OSError:
            continue  # closed between the two looks
    return False
