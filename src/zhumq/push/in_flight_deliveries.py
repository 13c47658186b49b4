"""Deliveries that a consumer has not answered yet, by partition. Pure: offsets and times in, counts out."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from zhumq.model.ids import TopicPartition


class NotHeld(Exception):
    """An answer for an offset that was not delivered to the consumer, or is already answered."""

    def __init__(self, place: TopicPartition, offset: int) -> None:
        super().__init__(f"{place}: offset {offset} is not in flight on this stream")


class Piece(NamedTuple):
    """Consecutive offsets that were delivered together."""

    first_offset: int
    next_offset: int
    deadline_ms: int


class InFlightDeliveries:
    """The unanswered messages of one stream. The stream's credit bounds their number."""

    def __init__(self) -> None:
        # Invariant: pieces of a partition are sorted and do not overlap; no empty lists.
        self._pieces: dict[TopicPartition, list[Piece]] = {}
        self.count = 0

    def count_of(self, place: TopicPartition) -> int:
        return sum(piece.next_offset - piece.first_offset for piece in self._pieces.get(place, ()))

    def add(
        self, place: TopicPartition, first_offset: int, last_offset: int, deadline_ms: int
    ) -> None:
        """Add sent offsets. Offsets that are in flight already only get the new deadline."""
        self._cut(place, first_offset, last_offset + 1)
        pieces = self._pieces.setdefault(place, [])
        piece = Piece(first_offset, last_offset + 1, deadline_ms)
        pieces.insert(_index_of(pieces, first_offset) + 1, piece)
        self.count += piece.next_offset - piece.first_offset

    def check(self, place: TopicPartition, first_offset: int, last_offset: int) -> None:
        """Raise NotHeld unless all of these are in flight."""
        pieces = self._pieces.get(place, [])
        offset = first_offset
        index = _index_of(pieces, first_offset)
        while offset <= last_offset:
            if not 0 <= index < len(pieces):
                raise NotHeld(place, offset)
            piece = pieces[index]
            if not piece.first_offset <= offset < piece.next_offset:
                raise NotHeld(place, offset)
            offset = piece.next_offset
            index += 1

    def remove(self, place: TopicPartition, first_offset: int, last_offset: int) -> None:
        """Remove offsets that are answered or released."""
        self._cut(place, first_offset, last_offset + 1)

    def extend_deadline(
        self, place: TopicPartition, first_offset: int, last_offset: int, deadline_ms: int
    ) -> None:
        """Give in-flight offsets a new deadline."""
        self.add(place, first_offset, last_offset, deadline_ms)

    def drop_from(self, place: TopicPartition, offset: int) -> None:
        """Remove everything from an offset on, as ordered mode does on a release."""
        pieces = self._pieces.get(place)
        if pieces:
            self._cut(place, offset, max(pieces[-1].next_offset, offset))

    def drop(self, place: TopicPartition) -> None:
        """Remove everything of a partition."""
        self.count -= self.count_of(place)
        self._pieces.pop(place, None)

    def clear(self) -> None:
        self._pieces.clear()
        self.count = 0

    def overdue(self, now_ms: int) -> Iterator[tuple[TopicPartition, Piece]]:
        """The pieces past their deadline."""
        for place, pieces in self._pieces.items():
            for piece in pieces:
                if piece.deadline_ms <= now_ms:
                    yield place, piece

    def next_deadline_ms(self) -> int | None:
        return min(
            (piece.deadline_ms for pieces in self._pieces.values() for piece in pieces),
            default=None,
        )

    def _cut(self, place: TopicPartition, first_offset: int, next_offset: int) -> None:
        pieces = self._pieces.get(place)
        if pieces is None or first_offset >= next_offset:
            return
        begin = max(_index_of(pieces, first_offset), 0)
        end = begin
        left: list[Piece] = []
        while end < len(pieces) and pieces[end].first_offset < next_offset:
            piece = pieces[end]
            overlap = min(piece.next_offset, next_offset) - max(piece.first_offset, first_offset)
            if overlap > 0:
                self.count -= overlap
                if piece.first_offset < first_offset:
                    left.append(piece._replace(next_offset=first_offset))
                if piece.next_offset > next_offset:
                    left.append(piece._replace(first_offset=next_offset))
            else:
                left.append(piece)
            end += 1
        pieces[begin:end] = left
        if not pieces:
            del self._pieces[place]


def _index_of(pieces: list[Piece], offset: int) -> int:
    """The last piece that begins at or before the offset; -1: none."""
    return bisect_right(pieces, offset, key=lambda piece: piece.first_offset) - 1
