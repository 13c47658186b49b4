"""Even shares for members with equal subscriptions, with as few topics for each member as possible. Pure.

Members differ by at most one partition. Within that, topics get members evenly: with a hundred members and twenty
topics of 25 partitions, each topic gets five members with five partitions each, and not 25 with one. Each member has
a home topic, and the number of homes of a topic is proportional to its partitions. When a member joins, shares are
built again around the homes, which keeps most partitions where they are. Otherwise a member loses a partition only
for evenness.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

# Topics and members are numbers, for speed: the whole group waits for an assignment.
Share = dict[int, set[int]]  # topic -> partitions
NO_HOME = -1


def even_shares(before: Sequence[Mapping[int, set[int]]], counts: Sequence[int]) -> list[Share]:
    """The share of each member. `before` contains only existing partitions, and none of them twice."""
    if not before:
        return []
    shares = _Shares(before, counts)
    if shares.least and not all(before):
        shares.gather_at_home(_homes(before, counts))
    shares.keep()
    shares.fill()
    shares.assign_odd()
    return shares.result


class _Shares:
    """The shares during computation: partitions only ever leave the free pool."""

    def __init__(self, before: Sequence[Mapping[int, set[int]]], counts: Sequence[int]) -> None:
        self._before = before
        self.result: list[Share] = [{} for _ in before]
        # Every member gets `least` partitions, and `_odd` members one more.
        self.least, self._odd = divmod(sum(counts), len(before))
        self._room = [self.least] * len(before)
        self._free = [set(range(count)) for count in counts]
        # Heaps of the same, smallest first; may contain partitions that are taken already.
        self._queues = [list(range(count)) for count in counts]

    def gather_at_home(self, homes: Sequence[int]) -> None:
        """Assign each topic to its home members: first what they have of it, then the rest."""
        at_home: dict[int, list[int]] = defaultdict(list)
        for member, topic in enumerate(homes):
            if topic != NO_HOME:
                at_home[topic].append(member)
        for topic, members in at_home.items():
            for member in members:
                self._keep(member, topic, self._room[member])
            # One member takes all the remaining room, rather than each a bit of it.
            for member in sorted(members, key=lambda each: (self._room[each], each)):
                self._take(member, topic, self._room[member])
        # Odd partitions go to home members first, so that no member of another topic has to read the topic.
        for topic in sorted(at_home, key=lambda each: (len(self._free[each]), each)):
            for member in at_home[topic]:
                if self._odd and self._free[topic]:
                    self._grant_odd(member, topic)

    def keep(self) -> None:
        """Let members keep what they have and is still free, the largest topic shares first."""
        for member, had in enumerate(self._before):
            for topic in sorted(had, key=lambda each: (-len(had[each]), each)):
                self._keep(member, topic, self._room[member])
        for member, had in enumerate(self._before):
            for topic in sorted(had, key=lambda each: (-len(had[each]), each)):
                if self._odd and self._is_at_least(member) and had[topic] & self._free[topic]:
                    self._grant_odd(member, topic)

    def fill(self) -> None:
        """Assign free partitions to members with room: of topics that they read already, else of the topic with the most
        free partitions."""
        short = [member for member, room in enumerate(self._room) if room]
        short.sort(key=lambda each: (-self._room[each], each))
        for member in short:
            own = self.result[member]
            for topic in sorted(own, key=lambda each: (-len(self._free[each]), each)):
                self._take(member, topic, self._room[member])
        left = [(-len(free), topic) for topic, free in enumerate(self._free) if free]
        heapq.heapify(left)
        for member in short:
            while self._room[member]:
                # The heap is not empty: `least` times the members is at most the number of partitions.
                topic = left[0][1]
                self._take(member, topic, self._room[member])
                if self._free[topic]:
                    heapq.heapreplace(left, (-len(self._free[topic]), topic))
                else:
                    heapq.heappop(left)

    def assign_odd(self) -> None:
        """Assign the remaining partitions, one each, preferably to members that read the topic already."""
        left = [topic for topic, free in enumerate(self._free) if free]
        if not left:
            return
        readers: dict[int, list[int]] = defaultdict(list)
        for member, share in enumerate(self.result):
            for topic in share:
                readers[topic].append(member)
        for topic in left:
            for member in readers[topic]:
                if self._free[topic] and self._is_at_least(member):
                    self._grant_odd(member, topic)
        others = (each for each in range(len(self.result)) if self._is_at_least(each))
        for topic in left:
            while self._free[topic]:
                self._grant_odd(next(others), topic)

    def _is_at_least(self, member: int) -> bool:
        """Whether the member may get an odd partition."""
        return sum(map(len, self.result[member].values())) == self.least

    def _grant_odd(self, member: int, topic: int) -> None:
        self._odd -= 1
        self._room[member] = 1
        self._keep(member, topic, 1)
        self._take(member, topic, self._room[member])

    def _keep(self, member: int, topic: int, most: int) -> None:
        """Assign up to `most` free partitions of the topic that the member had."""
        had = self._before[member].get(topic)
        if had and most:
            self._give(member, topic, sorted(had & self._free[topic])[:most])

    def _take(self, member: int, topic: int, most: int) -> None:
        """Assign up to `most` free partitions of the topic, the smallest first."""
        free, queue = self._free[topic], self._queues[topic]
        taken: list[int] = []
        while queue and len(taken) < most:
            partition = heapq.heappop(queue)
            if partition in free:
                taken.append(partition)
        self._give(member, topic, taken)

    def _give(self, member: int, topic: int, partitions: Iterable[int]) -> None:
        given = set(partitions)
        if given:
            self._free[topic] -= given
            self._room[member] -= len(given)
            self.result[member].setdefault(topic, set()).update(given)


def _homes(before: Sequence[Mapping[int, set[int]]], counts: Sequence[int]) -> list[int]:
    """The home topic of each member: where it has most partitions, if that topic has places left."""
    places = _places(counts, len(before))
    homes = [NO_HOME] * len(before)
    by_size = sorted(
        (-len(partitions), topic, member)
        for member, had in enumerate(before)
        for topic, partitions in had.items()
    )
    for _, topic, member in by_size:
        if homes[member] == NO_HOME and places[topic]:
            homes[member] = topic
            places[topic] -= 1
    left = iter([topic for topic, count in enumerate(places) for _ in range(count)])
    return [next(left, NO_HOME) if home == NO_HOME else home for home in homes]


def _places(counts: Sequence[int], members: int) -> list[int]:
    """The number of home members of each topic, by the Sainte-Laguë method: one more member never takes a place away
    from a topic. No topic has more places than partitions."""
    places = [0] * len(counts)
    heap = [(-float(count), topic) for topic, count in enumerate(counts) if count]
    heapq.heapify(heap)
    for _ in range(members):
        if not heap:
            break
        topic = heap[0][1]
        places[topic] += 1
        if places[topic] < counts[topic]:
            heapq.heapreplace(heap, (-counts[topic] / (2 * places[topic] + 1), topic))
        else:
            heapq.heappop(heap)
    return places
