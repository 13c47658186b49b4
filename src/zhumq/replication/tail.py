"""Follows a partition: notifies its owner of new visible records, which the owner reads at its own pace."""

from collections.abc import Callable
from typing import Protocol

from zhumq.replication.pending import Watched
from zhumq.storage.log_slice import LogSlice


class Observed(Protocol):
    """The partition, as a tail uses it."""

    @property
    def high_watermark(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> LogSlice: ...

    def unwatch(self, watcher: "Tail") -> None: ...


class Tail:
    """The visible batches of a partition from an offset on. `Partition.observe` makes it.

    What is derived from a log stands on it: deliveries, delays, indexes. It is a position and two callbacks, and
    holds no records; the owner reads when it has room, and moves `offset` when it is done with them.
    """

    __slots__ = ("_on_closed", "_on_records", "_partition", "offset")

    def __init__(
        self,
        partition: Observed,
        offset: int,
        on_records: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._on_records = on_records
        self._on_closed = on_closed
        self.offset = offset

    @property
    def is_behind(self) -> bool:
        """Whether there are visible records at or after `offset`."""
        return self.offset < self._partition.high_watermark

    def read(self, max_bytes: int) -> LogSlice:
        """Whole batches from `offset` on, at least one if one is visible. Raises BrokerError."""
        return self._partition.read(self.offset, max_bytes)

    def close(self) -> None:
        """Stop following; no callback comes after this."""
        self._partition.unwatch(self)

    # What the partition calls

    def on_bytes(self, _count: int, _source: Watched) -> None:
        if self.is_behind:
            self._on_records()

    def on_retired(self) -> None:
        """This broker no longer serves the partition."""
        self._partition.unwatch(self)
        self._on_closed()
