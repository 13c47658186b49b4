"""Where the archive of a topic ends and the topic takes over, for each partition. Pure: offsets in, a split out."""

from collections.abc import Mapping
from dataclasses import dataclass

from zhumq.model.errors import ZhumqError


class ArchiveGap(ZhumqError):
    """Offsets of a topic are in neither the archive nor the topic."""


class ArchiveAhead(ZhumqError):
    """The archive holds offsets that the topic never had: they belong to another topic of the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of a partition in its topic."""

    first_offset: int
    stable_offset: int  # exclusive; what a reader at read_committed sees
    end_offset: int  # exclusive

    # Invariant of a log: first_offset <= end_offset, and stable_offset <= end_offset.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSplit:
    """Which offsets of a partition are read from where."""

    archived_until: int  # exclusive; rows of the archive from here on are not read
    first_offset: int  # of what is read from the topic
    until_offset: int  # exclusive


def split_partitions(
    topic: str,
    offsets: Mapping[int, PartitionOffsets],
    archived: Mapping[int, int],
    *,
    allows_gaps: bool = False,
) -> dict[int, PartitionSplit]:
    """The split of each partition. Raises ArchiveGap and ArchiveAhead.

    `archived` has the next offset of each partition in the archive, where it has any.
    """
    for partition, until in sorted(archived.items()):
        end = offsets[partition].end_offset if partition in offsets else 0
        if until > end:
            raise ArchiveAhead(
                f"the archive holds {topic}-{partition} up to offset {until}, and the topic ends at {end}:"
                " the topic was created again, or it is another topic of the same name; archive it into"
                " another table, and give that one"
            )
    if not allows_gaps:
        _check_gaps(topic, offsets, archived)
    splits = {}
    for partition, facts in offsets.items():
        until = archived.get(partition, 0)
        first = max(until, facts.first_offset)
        splits[partition] = PartitionSplit(
            archived_until=until,
            first_offset=first,
            until_offset=max(first, facts.stable_offset),
        )
    return splits


def _check_gaps(
    topic: str, offsets: Mapping[int, PartitionOffsets], archived: Mapping[int, int]
) -> None:
    gaps = [
        (partition, until, offsets[partition].first_offset)
        for partition, until in sorted(archived.items())
        if until < offsets[partition].first_offset
    ]
    if not gaps:
        return
    partition, until, first = gaps[0]
    more = f" (and {len(gaps) - 1} more partitions have a gap)" if len(gaps) > 1 else ""
    raise ArchiveGap(
        f"{topic}-{partition} has a gap: the archive ends at offset {until}, and retention has deleted the"
        f" topic up to {first}{more}; --allow-gaps (allows_gaps=True in a notebook) reads what is left, and"
        " a longer retention.ms or a more frequent archive avoids it"
    )
