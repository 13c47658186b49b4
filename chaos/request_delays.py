"""Draws how long a proxy holds a client's request back. Pure: the same seed gives the same delays."""

import random
from typing import Final

PRODUCE: Final = 0
END: Final = 26
COMMIT_OFFSETS: Final = 28
# The share of requests of each API that are delayed, and the first version of which.
#
# Produce is safe in all versions: it is verified, and has sequences. In version 1 of transactions nothing tells an EndTxn from that of the
# next transaction, so a late one ends the next, with Kafka as well; version 2 has a new epoch for each (KIP-890).
DELAYED: Final = {PRODUCE: (0.01, 0), END: (0.03, 5), COMMIT_OFFSETS: (0.03, 5)}
# Some are delayed past the time limit of the client, which then goes on with another connection: the broker
# gets the old request after those of the next transaction.
SECONDS: Final = (0.2, 9.0)


class RequestDelays:
    """The delays of one run."""

    def __init__(self, *, seed: int) -> None:
        self._draw = random.Random(f"delays-{seed}")  # noqa: S311 (repeatable, not secret)
        self.delayed = 0

    def seconds_of(self, api_key: int, version: int) -> float:
        """How long to hold back a request of this API and version."""
        share, first_version = DELAYED.get(api_key, (0.0, 0))
        if version < first_version or self._draw.random() >= share:
            return 0.0
        self.delayed += 1
        return self._draw.uniform(*SECONDS)
