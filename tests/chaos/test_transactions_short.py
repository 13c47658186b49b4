"""A short chaos run with transactions: kills, pauses, cuts and late requests cause no findings."""

from pathlib import Path

import pytest
from chaos.modes import mixed_faults
from chaos.run import TRANSACTION_TOPICS, ChaosRun, run
from chaos.schedule import Durations, FaultKind

SEED = 20261117
SECONDS = 15.0
KINDS = (
    FaultKind.KILL_LEADER,
    FaultKind.KILL_GROUP_COORDINATOR,
    FaultKind.PAUSE_LEADER,
    FaultKind.CUT_PAIR,
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_transactions_on_a_cluster_that_is_broken_are_whole_or_not_there(tmp_path: Path) -> None:
    report = run(
        ChaosRun(
            title="short",
            seed=SEED,
            inflict=mixed_faults(
                SECONDS,
                kinds=KINDS,
                durations=Durations(kill=(200, 2_000), pause=(3_000, 5_000), cut=(1_000, 5_000)),
            ),
            topics=TRANSACTION_TOPICS,
            producers=4,
            transactional=True,
            zookeeper_nodes=1,
            folder=tmp_path,
        )
    )
    assert report.is_clean, "\n".join(report.lines())
    assert report.verdict.transactions_committed > 0
    assert report.verdict.transactions_aborted > 0
    assert report.verdict.values_read >= report.verdict.sends_acknowledged
    assert report.injected_faults
    assert report.delayed_requests
