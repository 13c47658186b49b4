"""Transactions under faults: the guarantees hold, and planted bugs break them."""

import pytest
from mutants_of_transactions import TRANSACTION_MUTANTS, TransactionMutant
from simulation.transactions import main, run

SEEDS = 40
MUTANT_SEEDS = 150  # from the one that found the planted bug when it was planted


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_the_guarantees_of_transactions_hold_under_faults(first: int) -> None:
    committed = aborted = decided = crashes = 0
    for seed in range(first, first + 10):
        world = run(seed)
        committed += len(world.history.committed)
        aborted += len(world.history.aborted)
        decided += len(world.history.decided)
        crashes += world.crashes
    # The runs are worth something.
    assert committed > 30
    assert aborted > 60
    assert decided > 10
    assert crashes > 30


@pytest.mark.parametrize("mutant", TRANSACTION_MUTANTS, ids=lambda each: each.name)
def test_a_planted_bug_is_found(mutant: TransactionMutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch.setattr)
    for seed in range(mutant.seed, mutant.seed + MUTANT_SEEDS):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"{mutant.name} survives: {mutant.plant.__doc__}")


def test_there_are_enough_planted_bugs() -> None:
    assert len({each.name for each in TRANSACTION_MUTANTS}) == len(TRANSACTION_MUTANTS) >= 25


def test_a_run_of_many_seeds_says_what_it_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seeds", "2"]) == 0
    assert capsys.readouterr().out.startswith("transactions: 2 seeds from 0: 0 violations, ")
    (mutant,) = (each for each in TRANSACTION_MUTANTS if each.name == "keep_the_epoch")
    mutant.plant(monkeypatch.setattr)
    assert main(["--seed", str(mutant.seed)]) == 1
    assert f"seed {mutant.seed}: VIOLATED" in capsys.readouterr().out
