"""Offset ranges: cut for tasks, cut for a trigger. Pure: facts in, ranges out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from zhumq.model.ids import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Some offsets of a partition, for one task."""

    place: TopicPartition
    first_offset: int
    until_offset: int  # exclusive

    @property
    def size(self) -> int:
        return self.until_offset - self.first_offset


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None, rows_max: int | None
) -> list[OffsetRange]:
    """The ranges, none of them empty, cut so that there are enough and none is too large.

    As in Spark's connector, larger ranges get more of the parts, and the number is a wish: the
    rounding may give a few more or less.
    """
    left = [each for each in ranges if each.size > 0]
    if rows_max is not None:
        left = [part for each in left for part in _cut(each, -(-each.size // rows_max))]
    if partitions_min is None or len(left) >= partitions_min:
        return left
    total = sum(each.size for each in left)
    return [
        part
        for each in left
        for part in _cut(each, max(1, round(each.size / total * partitions_min)))
    ]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    bounds = [whole.first_offset + whole.size * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(place=whole.place, first_offset=first, until_offset=until)
        for first, until in pairwise(bounds)
    ]


def limit_offsets(start: Mapping[TopicPartition, int], latest: Offsets, rows_max: int) -> Offsets:
    """Where a trigger may read up to, so that it reads about rows_max: each partition its share.

    Every partition with news advances by at least one, so that none waits for ever.
    """
    sizes = {place: end - start[place] for place, end in latest.items() if end > start[place]}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(latest)
    limited = dict(latest)
    for place, size in sizes.items():
        limited[place] = start[place] + min(size, max(1, rows_max * size // total))
    return limited


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The shape of Spark's Kafka offsets, as it stands in checkpoints: its keys are strings."""
    document: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        document.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return document


def from_json(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }
