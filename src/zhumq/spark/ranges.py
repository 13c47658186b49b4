"""Splits offset ranges into tasks, limits what a trigger reads, and encodes offsets as JSON. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from zhumq.model.ids import TopicPartition

Offsets = dict[TopicPartition, int]
TopicIds = dict[str, str]
OffsetsDocument = dict[str, dict[str, int | str]]
TOPIC_ID_KEY: Final = "topicId"  # a key beside the partition numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Some offsets of a partition, for one task."""

    place: TopicPartition
    first_offset: int
    until_offset: int  # exclusive
    topic_id: str | None = None  # of the topic that the offsets belong to, where it is known

    @property
    def size(self) -> int:
        return self.until_offset - self.first_offset


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None, rows_max: int | None
) -> list[OffsetRange]:
    """Split ranges into at least `partitions_min` parts of at most `rows_max` offsets; drop empty ones.

    As in Spark's connector, larger ranges get more parts, and `partitions_min` is a target: rounding
    may give a few more or less.
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
        OffsetRange(
            place=whole.place,
            first_offset=first,
            until_offset=until,
            topic_id=whole.topic_id,
        )
        for first, until in pairwise(bounds)
    ]


def limit_offsets(start: Mapping[TopicPartition, int], latest: Offsets, rows_max: int) -> Offsets:
    """The end offsets of a trigger that reads about rows_max, in proportion to each partition's backlog.

    Every partition with new records advances by at least one offset, so that none waits forever.
    """
    sizes = {place: end - start[place] for place, end in latest.items() if end > start[place]}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(latest)
    limited = dict(latest)
    for place, size in sizes.items():
        limited[place] = start[place] + min(size, max(1, rows_max * size // total))
    return limited


def to_json(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
) -> OffsetsDocument:
    """Offsets as Spark's Kafka connector writes them to checkpoints, and the id of each topic.

    A topic that was deleted and created again has the same name and another id: older offsets do not
    apply to it.
    """
    document: OffsetsDocument = {}
    for place in sorted(offsets):
        document.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    for topic, topic_id in (topic_ids or {}).items():
        if topic in document:
            document[topic][TOPIC_ID_KEY] = topic_id
    return document


def from_json(document: Mapping[str, Mapping[str, int | str]]) -> Offsets:
    """The offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
        if partition != TOPIC_ID_KEY
    }


def is_of_topics(document: object) -> bool:
    """Whether Spark noted the offsets of topics. A source of files has the number of a note of its own."""
    return isinstance(document, dict) and all(isinstance(each, dict) for each in document.values())


def topic_ids_from_json(document: Mapping[str, Mapping[str, int | str]]) -> TopicIds:
    """The topic ids in a checkpoint; checkpoints of earlier versions have none."""
    return {
        topic: str(partitions[TOPIC_ID_KEY])
        for topic, partitions in document.items()
        if TOPIC_ID_KEY in partitions
    }


def recreated_topics(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics whose id is known before and now, and differs."""
    return sorted(topic for topic in before if now.get(topic, before[topic]) != before[topic])
