"""How the replicas of a partition agree: by votes, or by a leader that the controller names."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby

# A read-only setting of topics: the mode that each partition is in, which `replication.mode` asks for.
MODES_SETTING = "replication.mode.partitions"


class Mode(StrEnum):
    """How a partition is replicated; a topic's setting `replication.mode`."""

    RAFT = "raft"
    FETCH = "fetch"


def write_modes(modes: Sequence[Mode]) -> str:
    """The modes of partitions 0, 1, ... as runs: `0-3:raft,4:fetch`."""
    runs: list[str] = []
    first = 0
    for mode, run in groupby(modes):
        last = first + len(list(run)) - 1
        runs.append(f"{first}:{mode}" if first == last else f"{first}-{last}:{mode}")
        first = last + 1
    return ",".join(runs)


def read_modes(text: str) -> list[Mode]:
    """What `write_modes` wrote. Raises ValueError."""
    modes: list[Mode] = []
    for run in text.split(",") if text else ():
        numbers, _, mode = run.partition(":")
        first, _, last = numbers.partition("-")
        modes += [Mode(mode)] * (int(last or first) - int(first) + 1)
    return modes
