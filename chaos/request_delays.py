"""Draws how long a proxy holds a client's request back. Pure: the same seed gives the same delays."""

import random
from typing import Final

PRODUCE: Final = 0
ADD_PARTITIONS: Final = 24
END: Final = 26
COMMIT_OFFSETS: Final = 28
# The share of requests of each API that are delayed.
SHARES: Final = {PRODUCE: 0.01, ADD_PARTITIONS: 0.01, END: 0.02, COMMIT_OFFSETS: 0.02}
# Some are delayed past the time limit of the client, which then goes on with another connection: the broker
# gets the old request after those of the next transaction.
SECONDS: Final = (0.2, 9.0)


class RequestDelays:
    """The delays of one run."""

    def __init__(self, *, seed: int) -> None:
        self._draw = random.Random(f"delays-{seed}")  # noqa: S311 (repeatable, not secret)
        self.delayed = 0

    def seconds_of(self, api_key: int) -> float:
        """How long to hold back a request of this API."""
        if self._draw.random() >= SHARES.get(api_key, 0.0):
            return 0.0
        self.delayed += 1
        return self._draw.uniform(*SECONDS)
