"""Remembers which batches of idempotent producers were refused, so that what follows them waits too."""

from collections import deque
from collections.abc import Mapping
from typing import Final

from zhumq.records.batch import HEADER_BYTES, BatchHeader, decode_header
from zhumq.storage.producer_state import ProducerEntry

PRODUCERS_MAX: Final = 1_000  # the oldest is forgotten first
SEQUENCES_MAX: Final = 16  # of each; clients have five requests in flight
# A client that tries again does so much sooner; one that has not by then is gone.
REMEMBERED_MS: Final = 60_000


class RefusedBatches:
    """A client sends several batches ahead. If the first is refused because nobody serves yet, and
    the second arrives just when somebody does, the second is out of order. Told so, librdkafka takes
    another epoch and sends all it has in flight once more: every record that was written and not
    answered yet is then there twice. So the second is refused like the first, and both come again.
    """

    __slots__ = ("_of_producer",)

    def __init__(self) -> None:
        # When, epoch, first sequences; the one noted last stands last.
        self._of_producer: dict[int, tuple[int, int, deque[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_producer)

    def any_left(self, now_ms: int) -> bool:
        """Whether there is anything still to be waited for."""
        while self._of_producer:
            producer_id = next(iter(self._of_producer))
            if now_ms - self._of_producer[producer_id][0] < REMEMBERED_MS:
                return True
            del self._of_producer[producer_id]
        return False

    def note(self, batches: bytes | memoryview, now_ms: int) -> None:
        """These were refused, with an error after which clients send them again."""
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
        """Whether one that was refused, and is not written by now, has to come before these."""
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
    """Of a producer that numbers its batches; None for any other, and for what is no batch."""
    if len(batches) < HEADER_BYTES:
        return None
    header = decode_header(batches)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None
