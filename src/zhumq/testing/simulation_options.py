"""What a simulation is made of: which cluster, which faults, for how long."""

from dataclasses import dataclass
from typing import Final

from zhumq.consensus.contract import Mode

FAULTY_MS: Final = 20_000
FAULT_KINDS: Final = (
    "crash",
    "crash all",
    "pause",
    "cut",
    "cut one way",
    "cut from store",
    "coordinator away",
    "damage",
    "wipe",
    "retention",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One simulation. Everything else follows from the seed."""

    seed: int
    mode: Mode = Mode.RAFT
    nodes: int = 3
    faulty_ms: int = FAULTY_MS
    switches: bool = False
    # None: each seed draws which faults there are, so that some runs show one kind undisturbed.
    faults: tuple[str, ...] | None = None
    min_in_sync: int = 2
    # Replicas move from broker to broker: more of those than `replicas` (None: one on each).
    moves: bool = False
    replicas: int | None = None


def options_for(seed: int, *, faulty_ms: int = FAULTY_MS) -> Options:
    """Seeds walk through the kinds of clusters in turn."""
    kinds = (
        (Mode.RAFT, 3, False, None),
        (Mode.FETCH, 3, False, None),
        (Mode.RAFT, 5, False, None),
        (Mode.FETCH, 5, False, None),
        (Mode.RAFT, 3, True, None),
        (Mode.FETCH, 3, True, None),
        (Mode.RAFT, 5, True, None),
        (Mode.RAFT, 4, False, 3),
        (Mode.FETCH, 5, False, 3),
        (Mode.RAFT, 5, True, 3),
    )
    mode, nodes, switches, replicas = kinds[seed % len(kinds)]
    return Options(
        seed=seed,
        mode=mode,
        nodes=nodes,
        switches=switches,
        faulty_ms=faulty_ms,
        moves=replicas is not None,
        replicas=replicas,
    )
