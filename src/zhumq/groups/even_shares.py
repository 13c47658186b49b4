"""Shares of members that all read the same topics: equal in partitions, and of as few topics each as can be. Pure.

Members differ by at most one partition. Within that, topics get members evenly: a hundred members over twenty
topics of 25 partitions are five for each topic, with five partitions each, and not 25 with one. Each member has a
home topic, and topics have as many homes as their partitions are worth. Shares are put together anew around the
homes when somebody joins, which keeps most partitions where they are; as long as nobody does, a member loses a
partition for evenness only.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

# Topics and members are numbered: an assignment is made while the whole group waits.
Share = dict[int, set[int]]  # topic -> partitions
NO_HOME = -1


def even_shares(before: Sequence[Mapping[int, set[int]]], counts: Sequence[int]) -> list[Share]:
    """The share of each member. `before` names only partitions that exist, and none of them twice."""
    if not before:
        return []
    shares = _Shares(before, counts)
    if shares.least and not all(before):
        shares.gather_at_home(_homes(before, counts))
    shares.keep()
    shares.fill()
    shares.hand_out_odd_ones()
    return shares.result


class _Shares:
    """The shares while they are made: partitions only ever leave the pool of free ones."""

    def __init__(self, before: Sequence[Mapping[int, set[int]]], counts: Sequence[int]) -> None:
        self._before = before
        self.result: list[Share] = [{} for _ in before]
        # Everybody gets the least, and `_odd` members one more.
        self.least, self._odd = divmod(sum(counts), len(before))
        self._room = [self.least] * len(before)
        self._free = [set(range(count)) for count in counts]
        # The same, smallest first, with some that are taken already.
        self._queues = [list(range(count)) for count in counts]

    def gather_at_home(self, homes: Sequence[int]) -> None:
        """Each topic to the members that are at home there: what they have of it, then the rest of it."""
        at_home: dict[int, list[int]] = defaultdict(list)
        for member, topic in enumerate(homes):
            if topic != NO_HOME:
                at_home[topic].append(member)
        for topic, members in at_home.items():
            for member in members:
                self._keep(member, topic, self._room[member])
            # Room that is left over is one member's rather than a bit of everyone's.
            for member in sorted(members, key=lambda each: (self._room[each], each)):
                self._take(member, topic, self._room[member])
        # An odd partition at home is one that no member of another topic has to read.
        for topic in sorted(at_home, key=lambda each: (len(self._free[each]), each)):
            for member in at_home[topic]:
                if self._odd and self._free[topic]:
                    self._grant_odd(member, topic)

    def keep(self) -> None:
        """Members keep what they have and is still free, the larger parts of topics first."""
        for member, had in enumerate(self._before):
            for topic in sorted(had, key=lambda each: (-len(had[each]), each)):
                self._keep(member, topic, self._room[member])
        for member, had in enumerate(self._before):
            for topic in sorted(had, key=lambda each: (-len(had[each]), each)):
                if self._odd and self._is_at_least(member) and had[topic] & self._free[topic]:
                    self._grant_odd(member, topic)

    def fill(self) -> None:
        """Free partitions for members with room: of topics that they read already, else of the topic
        that has most of them left."""
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
                # There is one: the least of all members together is not more than there are.
                topic = left[0][1]
                self._take(member, topic, self._room[member])
                if self._free[topic]:
                    heapq.heapreplace(left, (-len(self._free[topic]), topic))
                else:
                    heapq.heappop(left)

    def hand_out_odd_ones(self) -> None:
        """What is left, one each, to members that read the topic already where there are such."""
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
        """Whether it may get an odd one."""
        return sum(map(len, self.result[member].values())) == self.least

    def _grant_odd(self, member: int, topic: int) -> None:
        self._odd -= 1
        self._room[member] = 1
        self._keep(member, topic, 1)
        self._take(member, topic, self._room[member])

    def _keep(self, member: int, topic: int, most: int) -> None:
        """What the member had of the topic and is free, as many as that."""
        had = self._before[member].get(topic)
        if had and most:
            self._give(member, topic, sorted(had & self._free[topic])[:most])

    def _take(self, member: int, topic: int, most: int) -> None:
        """The smallest that are free, as many as that."""
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
    """A home topic for each member: where it has most, as long as that topic has places left."""
    places = _places(counts, len(before))
    homes = [NO_HOME] * len(before)
    holdings = sorted(
        (-len(partitions), topic, member)
        for member, had in enumerate(before)
        for topic, partitions in had.items()
    )
    for _, topic, member in holdings:
        if homes[member] == NO_HOME and places[topic]:
            homes[member] = topic
            places[topic] -= 1
    left = iter([topic for topic, count in enumerate(places) for _ in range(count)])
    return [next(left, NO_HOME) if home == NO_HOME else home for home in homes]


def _places(counts: Sequence[int], members: int) -> list[int]:
    """How many members are at home in each topic: Sainte-Laguë's method, which takes no place away
    from any topic when there is one more to give. No topic has more than it has partitions."""
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
