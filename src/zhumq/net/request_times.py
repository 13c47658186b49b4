"""How long requests take until they are answered, by API: counts in buckets of time."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

# Upper ends of the buckets in seconds; one more bucket has all that takes longer.
BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_FIRST_BOUND: Final = BOUNDS[0]


class ApiTimes:
    """The requests of one API."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0  # all requests together


class RequestTimes:
    """The answered requests of a listener. Only APIs that the service has answered are here, so there are few."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[bytes, ApiTimes] = {}

    def record(self, key: bytes, seconds: float, count: int) -> None:
        """Count requests that were answered together. The key is the first two bytes of their frames."""
        try:
            times = self._by_key[key]
        except KeyError:
            times = self._by_key[key] = ApiTimes()
        # Most requests are in the first bucket.
        times.counts[0 if seconds <= _FIRST_BOUND else bisect_left(BOUNDS, seconds)] += count
        times.seconds += seconds * count

    def __iter__(self) -> Iterator[tuple[int, ApiTimes]]:
        """The number of each API, and its requests."""
        return ((int.from_bytes(key, "big"), times) for key, times in self._by_key.items())
