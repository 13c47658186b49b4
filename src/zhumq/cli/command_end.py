"""What is closed when a command ends, so that no command has to."""

from contextlib import ExitStack
from typing import Final, Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> None: ...


Resource = TypeVar("Resource", bound=_Closable)

# A process runs one command at a time.
_open: Final = ExitStack()


def closed_at_end(resource: Resource) -> Resource:
    """The resource, which is closed when the command ends."""
    _open.callback(resource.close)
    return resource


def end_command() -> None:
    """Close what the command has opened."""
    _open.close()
