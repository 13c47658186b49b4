"""The cache of index data: the least recently used sealed segments unload their indexes."""

from collections import OrderedDict
from typing import Protocol

LOADED_INDEXES_MAX = 64  # sealed segments whose indexes are kept in memory, in all logs together


class HasIndexes(Protocol):
    """A segment that can load its indexes again."""

    def unload_indexes(self) -> None:
        """Free the memory of the indexes."""

    def __hash__(self) -> int: ...


class IndexCache:
    """An LRU list of the sealed segments that have their indexes in memory."""

    __slots__ = ("_loaded",)

    def __init__(self) -> None:
        self._loaded: OrderedDict[HasIndexes, None] = OrderedDict()

    def touch(self, segment: HasIndexes) -> None:
        """Mark the segment's indexes as used. Beyond the limit, unload the least recently used ones."""
        self._loaded[segment] = None
        self._loaded.move_to_end(segment)
        if len(self._loaded) > LOADED_INDEXES_MAX:
            self._loaded.popitem(last=False)[0].unload_indexes()

    def forget(self, segment: HasIndexes) -> None:
        """Remove a segment that is no longer sealed or was deleted."""
        self._loaded.pop(segment, None)
