"""Chooses between topics by weight, so that none that has messages waits for ever. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

WEIGHT_MAX: Final = 1_000


class WeightedTurns:
    """Smooth weighted turns: of topics that always have messages, each is chosen in proportion to its weight.

    Every topic with messages earns its weight in each turn, and the one with the most credit is chosen and pays for
    all of them. So a topic with messages is chosen at the latest after about twice the sum of the weights divided by its own. A
    topic without messages earns nothing: it takes turns by its weight when it has some again, and no more.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        if not weights:
            raise ValueError("no topics: give at least one with its weight")
        for topic, weight in weights.items():
            # True is an int, and a list of partitions is what Consumer takes here.
            if type(weight) is not int or not 1 <= weight <= WEIGHT_MAX:
                raise ValueError(
                    f"the weight of {topic!r} is a whole number from 1 to {WEIGHT_MAX}, not {weight!r}"
                )
        self._weights = dict(weights)
        # Invariant: the topics that had messages at the last turn.
        self._credit: dict[str, int] = {}

    def choose(self, ready: Collection[str]) -> str:
        """The next topic of those that have messages, of which there is at least one."""
        assert ready, "no topic has messages"
        credit = {
            topic: self._credit.get(topic, 0) + weight
            for topic, weight in self._weights.items()
            if topic in ready
        }
        chosen = max(credit, key=lambda topic: (credit[topic], self._weights[topic]))
        credit[chosen] -= sum(self._weights[topic] for topic in credit)
        self._credit = credit
        return chosen
