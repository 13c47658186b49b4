"""Whatever one client sends, the broker goes on serving the others, in bounded memory."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zhumq.testing.broker import broker

from .cases import Case, bomb_cases, frame_cases, many_cases, produce_cases, swollen_cases
from .messages import TOPICS
from .target import Target
from .volley import SETTINGS, fire

SEED = 20_260
FRAMES = 4_000
MEMORY_GROWTH_BYTES_MAX = 400 * 1024 * 1024


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with broker(data_dir=tmp_path / "data", settings=SETTINGS) as running:
        target = Target(running.bootstrap, os.getpid())
        yield target
        target.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "cases", [frame_cases, produce_cases, many_cases, bomb_cases], ids=lambda cases: cases.__name__
)
def test_each_known_bad_frame_costs_at_most_its_own_connection(
    target: Target, cases: Callable[[], Iterator[Case]], caplog: pytest.LogCaptureFixture
) -> None:
    target.prepare(TOPICS)
    assert _surprises(target, cases()) == []
    _check_aftermath(target, caplog)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_array_blown_up_costs_at_most_its_own_connection(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    assert _surprises(target, swollen_cases(target.prepare(TOPICS))) == []
    _check_aftermath(target, caplog)


@pytest.mark.thorough
@pytest.mark.parametrize("mutated", [False, True], ids=["valid", "mutated"])
def test_random_requests_of_every_api_leave_the_broker_healthy(
    target: Target, mutated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fire(target, frames=FRAMES, seed=SEED + mutated, mutated_share=1.0 if mutated else 0.0)
    _check_aftermath(target, caplog)


def _surprises(target: Target, cases: Iterator[Case]) -> list[str]:
    surprises = []
    for case in cases:
        with target.peer() as peer:
            peer.send(case.data)
            target.check_health(case.name)
            outcome = peer.outcome(case.seconds)
            if outcome not in case.allowed:
                surprises.append(f"{case.name}: {outcome}")
        target.check_health(case.name)
    return surprises


def _check_aftermath(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    assert target.memory_growth_bytes < MEMORY_GROWTH_BYTES_MAX
    # Bad input is logged as a warning at most; an error is a bug of the broker.
    failures = [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]
    assert not failures, failures[0].exc_text or failures[0].getMessage()
