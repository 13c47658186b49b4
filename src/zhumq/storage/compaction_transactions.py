"""What compaction does with transactions: drops aborted batches, and the markers of emptied transactions."""

from collections.abc import Iterable

from zhumq.records.batch import BatchHeader
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Follows the transactions of a log while compaction reads its batches, from the oldest on.

    A marker stays as long as its transaction has batches: without it, readers would take the next
    transaction of that producer for a part of this one.
    """

    __slots__ = ("_aborted", "_has_batches", "_next", "_open")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda each: each.first_offset)
        self._next = 0  # the first one of them that has not begun
        self._open: dict[
            int, AbortedTransaction
        ] = {}  # the aborted ones at this offset, by producer
        self._has_batches: set[int] = (
            set()
        )  # the producers whose open transaction still has batches

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a data batch, and say whether it is of an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._has_batches.add(header.producer_id)
        return header.producer_id in self._open

    def end(self, header: BatchHeader, marker: EndMarker) -> tuple[bool, AbortedTransaction | None]:
        """Note a marker. Whether its transaction has batches left, and the transaction if it was aborted."""
        self._begin_up_to(header.last_offset)
        has_batches = header.producer_id in self._has_batches
        self._has_batches.discard(header.producer_id)
        aborted = None
        if marker.marker_type is MarkerType.ABORT:
            aborted = self._open.pop(header.producer_id, None)
        return has_batches, aborted

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            begun = self._aborted[self._next]
            self._open[begun.producer_id] = begun
            self._next += 1
