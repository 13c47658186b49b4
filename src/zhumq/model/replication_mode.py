"""Replication modes: raft (the replicas elect a leader) or fetch (the controller names the leader)."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby

# A read-only topic setting: the mode each partition is in. `replication.mode` is the requested mode.
MODES_SETTING = "replication.mode.partitions"


class Mode(StrEnum):
    """How a partition is replicated: the values of the topic setting `replication.mode`."""

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
    """The modes in the text that `write_modes` returns. Raises ValueError."""
    modes: list[Mode] = []
    for run in text.split(",") if text else ():
        numbers, _, mode = run.partition(":")
        first, _, last = numbers.partition("-")
        modes += [Mode(mode)] * (int(last or first) - int(first) + 1)
    return modes
