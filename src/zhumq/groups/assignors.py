"""The server-side assignors: pure functions of members, topics and the last assignment."""

import bisect
import heapq
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from zhumq.groups.even_shares import even_shares

Partitions = Mapping[uuid.UUID, frozenset[int]]
NOTHING: Final[Partitions] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member as an assignor needs it."""

    member_id: str
    instance_id: str | None = None
    subscribed: frozenset[uuid.UUID]
    # The last assignment; may contain topics and partitions that no longer exist.
    before: Partitions = field(default_factory=dict)


Assignor = Callable[[Sequence[AssignedMember], Mapping[uuid.UUID, int]], dict[str, Partitions]]


def uniform(
    members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    """Assign as evenly as the subscriptions allow, with as few changes as possible.

    If all members read the same topics, no two of them differ by more than one partition, and topics get members
    evenly (see `even_shares`). Otherwise no single move of a partition makes the assignment more even.
    """
    ordered = sorted(members, key=lambda each: each.member_id)
    if len({member.subscribed for member in ordered}) <= 1:
        return _even(ordered, partition_counts)
    load = _Load(ordered, partition_counts)
    load.assign_free()
    load.even_out()
    return load.result()


def _even(
    members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    """For members that all read the same topics."""
    read = members[0].subscribed if members else frozenset()
    topic_ids = sorted(read & partition_counts.keys())
    counts = [partition_counts[topic_id] for topic_id in topic_ids]
    numbers = {topic_id: number for number, topic_id in enumerate(topic_ids)}
    # Partitions that no longer exist, or that another member has already, are ignored.
    free = [set(range(count)) for count in counts]
    before: list[dict[int, set[int]]] = []
    for member in members:
        valid: dict[int, set[int]] = {}
        for topic_id, partitions in member.before.items():
            number = numbers.get(topic_id)
            if number is not None and (kept := free[number] & partitions):
                free[number] -= kept
                valid[number] = kept
        before.append(valid)
    return {
        member.member_id: {topic_ids[number]: frozenset(share[number]) for number in sorted(share)}
        for member, share in zip(members, even_shares(before, counts), strict=True)
    }


def range_(
    members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    """Assign each reader of a topic a range of adjacent partitions.

    Topics with equally many partitions and the same readers are split alike, so that one member gets the equal keys
    of all of them. Users of this assignor need that more than partitions that stay where they were.
    """
    # Static members keep their position in the order across restarts.
    ordered = sorted(
        members,
        key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id),
    )
    result: dict[str, dict[uuid.UUID, frozenset[int]]] = {each.member_id: {} for each in ordered}
    for topic_id, count in partition_counts.items():
        readers = [member for member in ordered if topic_id in member.subscribed]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for position, member in enumerate(readers):
            end = first + share + (position < extra)
            if end > first:
                result[member.member_id][topic_id] = frozenset(range(first, end))
            first = end
    return dict(result)


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": range_}


class _Load:
    """The partitions of each member while they are assigned.

    Members, topics and partitions are numbers here, for speed: the whole group waits for an assignment, and lookups of
    numbers are several times faster than of ids.
    """

    def __init__(
        self, members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
    ) -> None:
        self._members = members
        self._topic_ids = sorted(partition_counts)
        self._counts = [partition_counts[topic_id] for topic_id in self._topic_ids]
        # Invariant: the partitions of a topic are those from its start to the start of the next one.
        self._starts = [0, *itertools.accumulate(self._counts)]
        numbers = {topic_id: number for number, topic_id in enumerate(self._topic_ids)}
        self._readers = self._readers_of(numbers)
        self._owned: list[set[int]] = [set() for _ in members]
        self._taken: set[int] = set()
        for number, member in enumerate(members):
            kept = self._still_valid(member, numbers) - self._taken
            self._owned[number] = kept
            self._taken |= kept

    def _readers_of(self, numbers: Mapping[uuid.UUID, int]) -> list[list[int]]:
        """The members that read each topic."""
        alike: dict[frozenset[uuid.UUID], list[int]] = {}
        for number, member in enumerate(self._members):
            alike.setdefault(member.subscribed, []).append(number)
        readers: list[list[int]] = [[] for _ in self._topic_ids]
        for subscribed, who in alike.items():
            for topic_id in subscribed:
                if topic_id in numbers:
                    readers[numbers[topic_id]].extend(who)
        for each in readers:
            each.sort()
        return readers

    def _still_valid(self, member: AssignedMember, numbers: Mapping[uuid.UUID, int]) -> set[int]:
        valid: set[int] = set()
        for topic_id, partitions in member.before.items():
            topic = numbers.get(topic_id)
            if topic is not None and topic_id in member.subscribed:
                start, count = self._starts[topic], self._counts[topic]
                valid.update(start + each for each in partitions if each < count)
        return valid

    def assign_free(self) -> None:
        """Assign every free partition to the reader of its topic with the fewest partitions."""
        # Topics with few readers first: the readers of the others can still balance the load.
        for topic in sorted(range(len(self._counts)), key=lambda each: len(self._readers[each])):
            start, end = self._starts[topic], self._starts[topic + 1]
            free = [each for each in range(start, end) if each not in self._taken]
            if not free or not self._readers[topic]:
                continue
            heap = [(len(self._owned[number]), number) for number in self._readers[topic]]
            heapq.heapify(heap)
            for partition in free:
                count, number = heap[0]
                self._owned[number].add(partition)
                heapq.heapreplace(heap, (count + 1, number))

    def even_out(self) -> None:
        """Move partitions to readers that have at least two fewer, until there are none such."""
        # Every move decreases the sum of squares, so this terminates.
        moved = True
        while moved:
            moved = False
            # Receivers only gain partitions during a round, so these stay lower bounds.
            lowest = [
                min((len(self._owned[each]) for each in readers), default=0)
                for readers in self._readers
            ]
            by_load = sorted(range(len(self._members)), key=lambda each: -len(self._owned[each]))
            for number in by_load:
                moved = self._give_away(number, lowest) or moved

    def _give_away(self, number: int, lowest: Sequence[int]) -> bool:
        owned = self._owned[number]
        if min(lowest, default=0) + 2 > len(owned):
            return False
        gave = False
        for topic, partitions in self._by_topic(owned).items():
            if lowest[topic] + 2 > len(owned):
                continue
            heap = [(len(self._owned[each]), each) for each in self._readers[topic]]
            heapq.heapify(heap)
            while partitions and heap[0][0] + 2 <= len(owned):
                count, receiver = heap[0]
                moved = partitions.pop()
                owned.remove(moved)
                self._owned[receiver].add(moved)
                heapq.heapreplace(heap, (count + 1, receiver))
                gave = True
        return gave

    def _by_topic(self, owned: Iterable[int]) -> dict[int, list[int]]:
        by_topic: dict[int, list[int]] = {}
        for partition in sorted(owned):
            topic = bisect.bisect_right(self._starts, partition) - 1
            by_topic.setdefault(topic, []).append(partition)
        return by_topic

    def result(self) -> dict[str, Partitions]:
        result: dict[str, Partitions] = {}
        for member, owned in zip(self._members, self._owned, strict=True):
            result[member.member_id] = {
                self._topic_ids[topic]: frozenset(each - self._starts[topic] for each in partitions)
                for topic, partitions in self._by_topic(owned).items()
            }
        return result
