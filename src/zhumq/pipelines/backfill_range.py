"""The range of a backfill: its two sides as they were given, and the offsets of each partition. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zhumq.admin.errors import Refused
from zhumq.admin.offsets import EARLIEST, LATEST, Position
from zhumq.admin.positions import parse_position
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.spark.ranges import (
    Offsets,
    OffsetsDocument,
    TopicIds,
    from_json,
    to_json,
    topic_ids_from_json,
)

FROM: Final = "--from"
TO: Final = "--to"
_OFFSET: Final = re.compile(r"\s*([\w.-]{1,249}):(\d{1,10}):(\d{1,19})\s*")

RangesDocument = Mapping[str, Mapping[str, OffsetsDocument]]  # by source: from and to


class RangeInvalid(ZhumqError):
    """A range that is wrong in itself, or that the topics do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of the range as it was given: a position in every partition, or offsets of some."""

    option: str
    text: str
    position: Position | None = None
    offsets: Mapping[TopicPartition, int] | None = None

    def covers(self, place: TopicPartition) -> bool:
        return self.offsets is None or place in self.offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What the brokers say of the topics of one source."""

    source: str
    first: Offsets  # at the position of --from; empty if that gives offsets
    until: Offsets  # at the position of --to
    earliest: Offsets
    latest: Offsets  # the end for a reader, which is before open transactions
    topic_ids: TopicIds


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets of one partition: from `first`, before `until`."""

    place: TopicPartition
    first: int
    until: int

    @property
    def size(self) -> int:
        return self.until - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Offsets of the range that the broker has deleted, or may have."""

    place: TopicPartition
    earliest: int
    count: int | None  # None: a time does not tell how many messages were before it

    def words(self) -> str:
        if self.count is None:
            return (
                f"{self.place} begins at offset {self.earliest} by now: messages of the range may have"
                " been deleted before it"
            )
        return f"{self.place} begins at offset {self.earliest} by now: {self.count:,} offsets of the range are deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """The range of one source."""

    source: str
    partitions: tuple[PartitionRange, ...]  # without empty ones
    topic_ids: TopicIds
    gone: tuple[Gone, ...] = ()
    held: tuple[PartitionRange, ...] = ()  # what is behind the begin of an open transaction

    @property
    def size(self) -> int:
        return sum(each.size for each in self.partitions)

    @property
    def first(self) -> Offsets:
        return {each.place: each.first for each in self.partitions}

    @property
    def until(self) -> Offsets:
        return {each.place: each.until for each in self.partitions}

    def document(self) -> dict[str, OffsetsDocument]:
        return {
            "from": to_json(self.first, self.topic_ids),
            "to": to_json(self.until, self.topic_ids),
        }

    @staticmethod
    def of(source: str, document: Mapping[str, OffsetsDocument]) -> "SourceRange":
        first, until = from_json(document["from"]), from_json(document["to"])
        return SourceRange(
            source=source,
            partitions=tuple(
                PartitionRange(place=place, first=first[place], until=until[place])
                for place in sorted(until)
            ),
            topic_ids=topic_ids_from_json(document["to"]),
        )


def parse_side(text: str, option: str) -> Side:
    """A time, @MILLISECONDS, earliest, latest, or `topic:partition:offset,...`. Raises RangeInvalid."""
    try:
        position = parse_position(text, name=option)
    except Refused:
        offsets = _offsets_in(text)
        if offsets is None:
            raise _not_a_side(text, option) from None
        return Side(option=option, text=text, offsets=offsets)
    if position.offset is not None:
        raise _not_a_side(text, option)
    if position == (LATEST if option == FROM else EARLIEST):
        raise RangeInvalid(f"{option} {text}: nothing is in such a range")
    return Side(option=option, text=text, position=position)


def ranges_of(facts: Sequence[SourceFacts], begin: Side, end: Side) -> list[SourceRange]:
    """The offsets of each source. Raises RangeInvalid."""
    if begin.position is not None and end.position is not None:
        first_ms, until_ms = begin.position.timestamp_ms, end.position.timestamp_ms
        if first_ms is not None and until_ms is not None and first_ms >= until_ms:
            raise RangeInvalid(f"{FROM} {begin.text} is not before {TO} {end.text}")
    if begin.offsets is not None and end.offsets is not None:
        for place in sorted(set(begin.offsets) ^ set(end.offsets)):
            one, other = (FROM, TO) if place in begin.offsets else (TO, FROM)
            raise RangeInvalid(f"{one} names {place} and {other} does not: name it in both")
    known = {place for each in facts for place in each.earliest}
    for side in (begin, end):
        for place in sorted(set(side.offsets or ()) - known):
            raise RangeInvalid(f"{side.option} names {place}, which the pipeline does not read")
    return [_range_of(each, begin, end) for each in facts]


def as_document(ranges: Iterable[SourceRange]) -> dict[str, dict[str, OffsetsDocument]]:
    return {each.source: each.document() for each in ranges}


def overlap(one: RangesDocument, other: Mapping[str, Any]) -> int:
    """How many offsets are in both ranges."""
    count = 0
    for source in one.keys() & other.keys():
        first, second = SourceRange.of(source, one[source]), SourceRange.of(source, other[source])
        if any(first.topic_ids.get(x, y) != y for x, y in second.topic_ids.items()):
            continue  # of a topic that was deleted
        theirs = {each.place: each for each in second.partitions}
        for each in first.partitions:
            if (match := theirs.get(each.place)) is not None:
                both = min(each.until, match.until) - max(each.first, match.first)
                count += max(0, both)
    return count


def not_read_before(
    ranges: Iterable[SourceRange], next_offsets: Mapping[TopicPartition, int]
) -> int:
    """How many offsets of the ranges a stream has still to read, that continues at these offsets."""
    return sum(
        max(0, each.until - max(each.first, next_offsets[each.place]))
        for one in ranges
        for each in one.partitions
        if each.place in next_offsets
    )


def still_gone(noted: SourceRange, earliest: Mapping[TopicPartition, int]) -> tuple[Gone, ...]:
    """What was deleted of a range since it was noted."""
    return tuple(
        Gone(
            place=each.place,
            earliest=earliest[each.place],
            count=min(earliest[each.place], each.until) - each.first,
        )
        for each in noted.partitions
        if earliest.get(each.place, 0) > each.first
    )


def _range_of(facts: SourceFacts, begin: Side, end: Side) -> SourceRange:
    partitions: list[PartitionRange] = []
    gone: list[Gone] = []
    held: list[PartitionRange] = []
    for place in sorted(facts.earliest):
        if not begin.covers(place) or not end.covers(place):
            continue
        earliest, latest = facts.earliest[place], facts.latest[place]
        first = facts.first[place] if begin.offsets is None else begin.offsets[place]
        until = facts.until[place] if end.offsets is None else end.offsets[place]
        if end.offsets is not None and until > latest:
            raise RangeInvalid(f"{TO} {place} is {until}, and the partition ends at {latest}")
        if begin.offsets is not None and end.offsets is not None and first > until:
            raise RangeInvalid(f"{FROM} {place} is {first}, behind {TO}, which is {until}")
        if until > latest:
            held.append(PartitionRange(place=place, first=latest, until=until))
        missing = _gone(place, begin, first=first, until=until, earliest=earliest)
        gone += [missing] if missing is not None else []
        first, until = max(first, earliest), min(until, latest)
        if first < until:
            partitions.append(PartitionRange(place=place, first=first, until=until))
    return SourceRange(
        source=facts.source,
        partitions=tuple(partitions),
        topic_ids=facts.topic_ids,
        gone=tuple(gone),
        held=tuple(held),
    )


def _gone(
    place: TopicPartition, begin: Side, *, first: int, until: int, earliest: int
) -> Gone | None:
    if begin.offsets is not None:
        count = min(until, earliest) - first
        return Gone(place=place, earliest=earliest, count=count) if count > 0 else None
    if begin.position == EARLIEST or earliest == 0 or first > earliest:
        return None
    # The first message that is there is as new as the range: older ones of the range may be deleted.
    return Gone(place=place, earliest=earliest, count=None)


def _offsets_in(text: str) -> dict[TopicPartition, int] | None:
    found: dict[TopicPartition, int] = {}
    for part in text.split(","):
        match = _OFFSET.fullmatch(part)
        if match is None:
            return None
        place = TopicPartition(match[1], int(match[2]))
        if place in found:
            raise RangeInvalid(f"{text!r} names {place} twice")
        found[place] = int(match[3])
    return found


def _not_a_side(text: str, option: str) -> RangeInvalid:
    edge = "earliest" if option == FROM else "latest"
    return RangeInvalid(
        f"{option} takes a time such as 2026-01-31T09:00:00Z, @MILLISECONDS, {edge}, or offsets such as"
        f" orders:0:1200,orders:1:900, not {text!r}"
    )
