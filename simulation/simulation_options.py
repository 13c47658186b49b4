"""Options of a simulation: the cluster, the faults, the duration."""

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
    "controller away",
    "damage",
    "wipe",
    "retention",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one simulation. The seed determines everything else."""

    seed: int
    mode: Mode = Mode.RAFT
    nodes: int = 3
    faulty_ms: int = FAULTY_MS
    switches: bool = False
    # None: each seed draws its kinds of faults, so that some runs have only one kind.
    faults: tuple[str, ...] | None = None
    min_in_sync: int = 2
    # Whether replicas move between brokers: `nodes` is larger than `replicas` (None: one on each broker).
    moves: bool = False
    replicas: int | None = None


def options_for(seed: int, *, faulty_ms: int = FAULTY_MS) -> Options:
    """The options of a seed: consecutive seeds use the kinds of clusters in turn."""
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
