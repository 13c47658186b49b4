"""The consensus cores violate no invariant under faults, in virtual time."""

import pytest
from simulation.checkers import InvariantViolated
from simulation.simulation_options import FAULT_KINDS, Options, options_for
from simulation.simulator import main, run_seed

from zhumq.consensus.contract import Mode

SEEDS = 240
SEEDS_PER_TEST = 24
FIRSTS = [
    0,
    SEEDS_PER_TEST,
    *(
        pytest.param(first, marks=pytest.mark.thorough)
        for first in range(2 * SEEDS_PER_TEST, SEEDS, SEEDS_PER_TEST)
    ),
]


@pytest.mark.parametrize("first", FIRSTS)
def test_no_invariant_is_violated_under_any_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(options_for(seed, faulty_ms=10_000))
        assert outcome.acknowledged > 0


@pytest.mark.parametrize("kind", FAULT_KINDS)
@pytest.mark.parametrize("mode", list(Mode))
def test_each_fault_alone_is_survived(kind: str, mode: Mode) -> None:
    for seed in range(2):
        run_seed(Options(seed=seed, mode=mode, faults=(kind,), faulty_ms=8_000))


@pytest.mark.parametrize("mode", list(Mode))
def test_without_faults_one_leader_serves_from_beginning_to_end(mode: Mode) -> None:
    outcome = run_seed(Options(seed=3, mode=mode, faults=(), faulty_ms=5_000))
    assert outcome.elections == 1
    assert outcome.acknowledged > 20


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_that_changes_its_mode_again_and_again_loses_nothing(seed: int) -> None:
    options = Options(seed=seed, mode=Mode.RAFT, nodes=3, faults=(), switches=True)
    assert run_seed(options).acknowledged > 20


@pytest.mark.parametrize("seed", [5, 6])
def test_equal_seeds_give_equal_traces(seed: int) -> None:
    options = options_for(seed, faulty_ms=5_000)
    assert run_seed(options) == run_seed(options)
    other = options_for(seed + 7, faulty_ms=5_000)
    assert run_seed(other).trace_hash != run_seed(options).trace_hash


def test_a_single_seed_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "0", "--trace", "--seconds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "role 0 " in printed
    assert "trace hash" in printed


def test_a_violation_is_printed_with_its_seed_and_the_last_events(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from zhumq.consensus.raft import RaftReplica

    monkeypatch.setattr(RaftReplica, "_committed_offset", lambda self: self.log.log_end_offset)
    assert main(["--seeds", "1", "--first", "7", "--seconds", "2"]) == 1
    printed = capsys.readouterr().out
    assert "seed 7: VIOLATED nothing is visible before enough disks have it" in printed
    assert "start 0 1 0" in printed


def test_a_violation_names_its_invariant() -> None:
    error = InvariantViolated("one leader per epoch", "two")
    assert error.invariant in str(error)
