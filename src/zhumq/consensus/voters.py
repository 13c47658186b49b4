"""The voters of a partition and the arithmetic of their majority."""

from collections.abc import Iterable


class Voters:
    """The replicas whose votes and flushed logs count. Never empty, without duplicates."""

    __slots__ = ("ids", "majority", "order")

    def __init__(self, ids: Iterable[int]) -> None:
        # In assignment order: the first one is the preferred leader.
        self.order = tuple(ids)
        self.ids = tuple(sorted(set(self.order)))
        if not self.ids:
            raise ValueError("a partition needs at least one voter")
        self.majority = len(self.ids) // 2 + 1

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self.ids

    def others(self, replica_id: int) -> tuple[int, ...]:
        return tuple(each for each in self.ids if each != replica_id)

    def after(self, replica_id: int) -> int:
        """The next voter in round-robin order, to be asked when no leader is known."""
        return next((each for each in self.ids if each > replica_id), self.ids[0])

    def rank(self, replica_id: int, without: int | None) -> int:
        """The replica's place in the order of candidacy, not counting the voter `without`."""
        order = [each for each in self.order if each != without]
        return order.index(replica_id) if replica_id in order else len(order)

    def is_majority(self, replica_ids: Iterable[int]) -> bool:
        return sum(1 for each in set(replica_ids) if each in self.ids) >= self.majority

    def reached_by_majority(self, positions: Iterable[int]) -> int:
        """The largest value that a majority has reached, given one value per voter."""
        return sorted(positions, reverse=True)[self.majority - 1]
