"""Who reads which partition: the server-side assignors. Pure functions of members, topics and the last assignment."""

import heapq
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Partitions = Mapping[uuid.UUID, frozenset[int]]
NOTHING: Final[Partitions] = {}
_Partition = tuple[uuid.UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """What an assignor has to know of a member."""

    member_id: str
    instance_id: str | None = None
    subscribed: frozenset[uuid.UUID]
    # What the last assignment gave it; may name topics and partitions that are gone.
    before: Partitions = field(default_factory=dict)


Assignor = Callable[[Sequence[AssignedMember], Mapping[uuid.UUID, int]], dict[str, Partitions]]


def uniform(
    members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    """As even as subscriptions allow, and nobody loses a partition but for evenness.

    Where all members read the same topics, no two of them differ by more than one partition.
    Otherwise no single move of a partition could make it more even.
    """
    ordered = sorted(members, key=lambda each: each.member_id)
    load = _Load(ordered, partition_counts)
    if len({member.subscribed for member in ordered}) <= 1:
        load.cut_to_even_shares()
    load.hand_out_the_rest()
    load.even_out()
    return load.result()


def range_(
    members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    """Of every topic a run of neighbouring partitions for each reader.

    Topics with equally many partitions and the same readers are cut at the same places, so that what
    has the same key in both comes to the same member. That is worth more to its users than keeping
    partitions where they were.
    """
    # Static members keep their place in the order however often they restart.
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
    """How many partitions everybody has while they are being handed out."""

    def __init__(
        self, members: Sequence[AssignedMember], partition_counts: Mapping[uuid.UUID, int]
    ) -> None:
        self._members = members
        self._counts = partition_counts
        self._owned: list[set[_Partition]] = [set() for _ in members]
        self._readers: dict[uuid.UUID, list[int]] = {
            topic_id: [
                number for number, member in enumerate(members) if topic_id in member.subscribed
            ]
            for topic_id in partition_counts
        }
        self._taken: set[_Partition] = set()
        for number, member in enumerate(members):
            for partition in self._still_valid(member):
                if partition not in self._taken:
                    self._taken.add(partition)
                    self._owned[number].add(partition)

    def _still_valid(self, member: AssignedMember) -> Iterable[_Partition]:
        for topic_id, partitions in member.before.items():
            if topic_id in member.subscribed:
                count = self._counts.get(topic_id, 0)
                yield from ((topic_id, each) for each in partitions if each < count)

    def cut_to_even_shares(self) -> None:
        """Take from those that have more than their share; as many as can keep the odd one more."""
        if not self._members:
            return
        total = sum(count for topic_id, count in self._counts.items() if self._readers[topic_id])
        share, extra = divmod(total, len(self._members))
        for owned in self._owned:
            keeps = share
            if extra and len(owned) > share:
                extra -= 1
                keeps += 1
            for partition in sorted(owned)[keeps:]:
                owned.remove(partition)
                self._taken.remove(partition)

    def hand_out_the_rest(self) -> None:
        """Every free partition goes to the reader of its topic that has the fewest."""
        # Topics with few readers first: the others can still make up for what these have to take.
        topics = sorted(self._counts, key=lambda topic_id: (len(self._readers[topic_id]), topic_id))
        for topic_id in topics:
            free = [
                each
                for each in range(self._counts[topic_id])
                if (topic_id, each) not in self._taken
            ]
            if not free or not self._readers[topic_id]:
                continue
            heap = [(len(self._owned[number]), number) for number in self._readers[topic_id]]
            heapq.heapify(heap)
            for each in free:
                count, number = heap[0]
                self._owned[number].add((topic_id, each))
                heapq.heapreplace(heap, (count + 1, number))

    def even_out(self) -> None:
        """Move partitions to readers that have at least two fewer, until there are none such."""
        # Every move makes the sum of squares smaller, so this ends.
        moved = True
        while moved:
            moved = False
            by_load = sorted(range(len(self._members)), key=lambda each: -len(self._owned[each]))
            for number in by_load:
                moved = self._give_away(number) or moved

    def _give_away(self, number: int) -> bool:
        owned = self._owned[number]
        gave = False
        by_topic: dict[uuid.UUID, list[int]] = {}
        for topic_id, partition in sorted(owned):
            by_topic.setdefault(topic_id, []).append(partition)
        for topic_id, partitions in by_topic.items():
            heap = [(len(self._owned[each]), each) for each in self._readers[topic_id]]
            heapq.heapify(heap)
            while partitions and heap[0][0] + 2 <= len(owned):
                count, receiver = heap[0]
                moved = (topic_id, partitions.pop())
                owned.remove(moved)
                self._owned[receiver].add(moved)
                heapq.heapreplace(heap, (count + 1, receiver))
                gave = True
        return gave

    def result(self) -> dict[str, Partitions]:
        result: dict[str, Partitions] = {}
        for member, owned in zip(self._members, self._owned, strict=True):
            by_topic: dict[uuid.UUID, set[int]] = {}
            for topic_id, partition in owned:
                by_topic.setdefault(topic_id, set()).add(partition)
            result[member.member_id] = {
                topic_id: frozenset(by_topic[topic_id]) for topic_id in sorted(by_topic)
            }
        return result
