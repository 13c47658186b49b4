"""A short chaos run on a real cluster: kills, pauses, cuts and moves under load cause no findings."""

from pathlib import Path

import pytest
from chaos.modes import mixed_faults
from chaos.run import ChaosRun, run
from chaos.schedule import Durations, FaultKind

SEED = 20261115
SECONDS = 15.0
KINDS = (
    FaultKind.KILL_LEADER,
    FaultKind.KILL_GROUP_COORDINATOR,
    FaultKind.KILL_ALL,
    FaultKind.PAUSE_LEADER,
    FaultKind.CUT_PAIR,
    FaultKind.CUT_FROM_ZOOKEEPER,
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_cluster_that_is_broken_again_and_again_loses_nothing(tmp_path: Path) -> None:
    report = run(
        ChaosRun(
            title="short",
            seed=SEED,
            inflict=mixed_faults(
                SECONDS,
                kinds=KINDS,
                durations=Durations(kill=(200, 2_000), pause=(3_000, 5_000), cut=(1_000, 5_000)),
            ),
            zookeeper_nodes=1,
            per_second=150,
            switch_seconds=5.0,
            brokers=4,
            move_seconds=1.0,
            folder=tmp_path,
        )
    )
    assert report.is_clean, "\n".join(report.lines())
    assert report.verdict.sends_acknowledged > 0
    assert report.verdict.values_read == report.verdict.sends_acknowledged
    assert report.injected_faults
    assert report.moves
    assert report.bytes_compared > 0
