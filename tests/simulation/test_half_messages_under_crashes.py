"""Half messages: under crashes, late markers and repeated requests each is visible once, or never, as was acknowledged."""

from collections.abc import Callable

import pytest
from half_world import HalfWorld
from mutants_of_half_messages import HALF_MESSAGE_MUTANTS, Patch

SEEDS = 150
STEPS = 250


def run(seed: int) -> HalfWorld:
    world = HalfWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


@pytest.mark.thorough
def test_the_guarantees_hold_under_crashes() -> None:
    visible = checks = moves = 0
    for seed in range(SEEDS):
        world = run(seed)
        visible += len(world.visible)
        checks += sum(each.checks for each in world.known.values())
        moves += world.epoch
    # The runs are worth something: messages come through, producers are asked, transactions are begun.
    assert visible > SEEDS * 5
    assert checks > SEEDS * 3
    assert moves > SEEDS * 5


@pytest.mark.parametrize("plant", HALF_MESSAGE_MUTANTS, ids=lambda each: each.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch.setattr)
    for seed in range(SEEDS):
        try:
            run(seed)
        except (AssertionError, KeyError):
            return
    raise AssertionError(f"{plant.__name__} survives")
