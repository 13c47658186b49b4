"""Schedules of faults are drawn from the seed, and a short one has every kind."""

import itertools

from chaos.schedule import (
    KILLS,
    MIXED,
    PARTITIONS,
    PAUSES,
    Durations,
    FaultKind,
    Step,
    steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def first(count: int, seed: int, **options) -> list[Step]:
    return list(itertools.islice(steps(seed, **options), count))


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert first(100, 7) == first(100, 7)
    assert first(100, 7) != first(100, 8)


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_every_kind_comes_once_before_any_comes_again_as_the_first(seed: int) -> None:
    kinds = [step.faults[0].kind for step in first(2 * len(MIXED), seed)]
    assert set(kinds[: len(MIXED)]) == set(MIXED)
    assert set(kinds[len(MIXED) :]) == set(MIXED)


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_faults_last_as_long_as_their_kind_says(seed: int) -> None:
    durations = Durations(kill=(1, 2), pause=(10, 20), cut=(100, 200), slow=(1_000, 2_000))
    for step in first(50, seed, durations=durations):
        assert step.calm_ms > 0
        low = max(durations.of(fault.kind)[0] for fault in step.faults)
        high = max(durations.of(fault.kind)[1] for fault in step.faults)
        assert low <= step.lasts_ms <= high


def test_a_schedule_can_be_of_chosen_kinds_only() -> None:
    chosen = (FaultKind.KILL_LEADER, FaultKind.CUT_PAIR)
    faults = [fault for step in first(50, 3, kinds=chosen) for fault in step.faults]
    assert {fault.kind for fault in faults} == set(chosen)


def test_every_kind_is_in_one_category_at_most() -> None:
    assert not KILLS & PAUSES
    assert not KILLS & PARTITIONS
    assert not PAUSES & PARTITIONS
    others = set(FaultKind) - KILLS - PAUSES - PARTITIONS
    assert others == {
        FaultKind.STOP_BROKER,
        FaultKind.SLOW_BROKER,
        FaultKind.KILL_ZOOKEEPER_LEADER,
        FaultKind.KILL_ZOOKEEPER,
    }
