"""Remembers refused batches of idempotent producers, so that later batches are refused until they return."""

from collections import deque
from collections.abc import Mapping
from typing import Final

from zhumq.records.batch import HEADER_BYTES, BatchHeader, decode_header
from zhumq.storage.producer_state import ProducerEntry

PRODUCERS_MAX: Final = 1_000  # the oldest is dropped first
SEQUENCES_MAX: Final = 16  # per producer; clients have five requests in flight
# A client that retries does so much sooner; one that has not by then has given up.
REMEMBERED_MS: Final = 60_000


class RefusedBatches:
    """First sequences of refused batches, by producer.

    A producer has several batches in flight. If the first one arrives before a leader serves and the
    second one after it, the second one is out of order. On that error librdkafka takes another producer
    epoch and sends everything in flight again, which duplicates each record that was written and not yet
    acknowledged. So the leader refuses the second batch like the first, and the producer retries both.
    """

    __slots__ = ("_of_producer",)

    def __init__(self) -> None:
        # When, producer epoch, first sequences; the latest refusal is last.
        self._of_producer: dict[int, tuple[int, int, deque[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_producer)

    def any_left(self, now_ms: int) -> bool:
        """Whether any refused batch is still expected again; drops those that are too old."""
        while self._of_producer:
            producer_id = next(iter(self._of_producer))
            if now_ms - self._of_producer[producer_id][0] < REMEMBERED_MS:
                return True
            del self._of_producer[producer_id]
        return False

    def add(self, batches: bytes | memoryview, now_ms: int) -> None:
        """Add batches that were refused with a retriable error."""
        header = _first_header(batches)
        if header is None:
            return
        _, epoch, sequences = self._of_producer.pop(header.producer_id, (0, -1, None))
        if sequences is None or epoch != header.producer_epoch:
            sequences = deque(maxlen=SEQUENCES_MAX)
        if header.base_sequence not in sequences:
            sequences.append(header.base_sequence)
        self._of_producer[header.producer_id] = (now_ms, header.producer_epoch, sequences)
        if len(self._of_producer) > PRODUCERS_MAX:
            del self._of_producer[next(iter(self._of_producer))]

    def holds_back(
        self, batches: bytes | memoryview, producers: Mapping[int, ProducerEntry]
    ) -> bool:
        """Whether a refused batch that is not written yet has to come before these."""
        header = _first_header(batches)
        if header is None or header.producer_id not in self._of_producer:
            return False
        _, epoch, sequences = self._of_producer[header.producer_id]
        entry = producers.get(header.producer_id)
        is_known = entry is not None and entry.epoch == header.producer_epoch
        expected = entry.next_sequence if entry is not None and is_known else 0
        missing = [each for each in sequences if each >= expected]
        if epoch != header.producer_epoch or not missing:
            del self._of_producer[header.producer_id]
            return False
        return min(missing) < header.base_sequence


def _first_header(batches: bytes | memoryview) -> BatchHeader | None:
    """The first header, if an idempotent producer wrote the batches; None otherwise, or if too short."""
    if len(batches) < HEADER_BYTES:
        return None
    header = decode_header(batches)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None
