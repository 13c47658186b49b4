"""A directed schedule, or one of the first random seeds, finds every planted bug."""

import mutants_of_acceptance
import mutants_of_availability
import mutants_of_moves
import mutants_of_named_leaders
import pytest
from mutants import MUTANTS, Mutant
from schedules import SCHEDULES
from schedules_of_acceptance import ACCEPTANCE_SCHEDULES
from schedules_of_availability import AVAILABILITY_SCHEDULES
from simulation.simulation_options import Options
from simulation.simulator import run_seed

# An import registers the mutants.
assert mutants_of_acceptance
assert mutants_of_availability
assert mutants_of_moves
assert mutants_of_named_leaders

SEEDS_MAX = 200  # for each mutant; the first few find most of them


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_the_suite_finds_the_planted_bug(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch.setattr)
    assert _is_found(mutant), f"{mutant.name} survives"


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 20
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


def _is_found(mutant: Mutant) -> bool:
    for schedule in (*SCHEDULES, *ACCEPTANCE_SCHEDULES, *AVAILABILITY_SCHEDULES):
        try:
            schedule()
        except AssertionError:
            return True
    for seed in range(SEEDS_MAX):
        mode, nodes, switches, replicas = mutant.clusters[seed % len(mutant.clusters)]
        options = Options(
            seed=seed,
            mode=mode,
            nodes=nodes,
            switches=switches,
            moves=replicas is not None,
            replicas=replicas,
        )
        try:
            run_seed(options)
        except AssertionError:
            return True
    return False
