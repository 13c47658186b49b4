"""Which sealed segments have their indexes in memory: those looked at last."""

from collections import OrderedDict
from typing import Protocol

LOADED_INDEXES_MAX = 64  # sealed segments whose indexes are kept in memory, in all logs together


class HasIndexes(Protocol):
    """A segment that can load its indexes again."""

    def unload_indexes(self) -> None:
        """Give their memory back."""

    def __hash__(self) -> int: ...


class IndexCache:
    """Which sealed segments have their indexes in memory: those looked at last."""

    __slots__ = ("_loaded",)

    def __init__(self) -> None:
        self._loaded: OrderedDict[HasIndexes, None] = OrderedDict()

    def touch(self, segment: HasIndexes) -> None:
        """The segment's indexes are being used; the longest unused ones may have to go."""
        self._loaded[segment] = None
        self._loaded.move_to_end(segment)
        if len(self._loaded) > LOADED_INDEXES_MAX:
            self._loaded.popitem(last=False)[0].unload_indexes()

    def forget(self, segment: HasIndexes) -> None:
        """The segment is no longer sealed, or no longer there."""
        self._loaded.pop(segment, None)
