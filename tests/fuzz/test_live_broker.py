"""Whatever one client sends, the broker goes on serving the others, in time and in bounded memory."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zhumq.protocol.api import APIS, ApiKey
from zhumq.testing.broker import broker

from .cases import Case, bomb_cases, frame_cases, many_cases, produce_cases
from .messages import TOPICS, Messages, mutated_frame
from .target import Outcome, Target

SEED = 20_260
FRAMES = 4_000
MEMORY_GROWTH_BYTES_MAX = 400 * 1024 * 1024
SETTINGS = {
    "num.partitions": "1",
    # Small caps, so that random requests cannot fill the disk of a test machine.
    "topic.partitions.max": "50",
    "cluster.partitions.max": "1500",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with broker(data_dir=tmp_path / "data", settings=SETTINGS) as running:
        target = Target(running.bootstrap, os.getpid())
        yield target
        target.close()


@pytest.mark.parametrize(
    "cases", [frame_cases, produce_cases, many_cases, bomb_cases], ids=lambda cases: cases.__name__
)
def test_each_known_bad_frame_costs_at_most_its_own_connection(
    target: Target, cases: Callable[[], Iterator[Case]]
) -> None:
    target.prepare(TOPICS)
    surprises = []
    for case in cases():
        with target.peer() as peer:
            peer.send(case.data)
            target.check_health(case.name)
            outcome = peer.outcome(case.seconds)
            if outcome not in case.allowed:
                surprises.append(f"{case.name}: {outcome}")
        target.check_health(case.name)
    assert not surprises
    assert target.memory_growth_bytes < MEMORY_GROWTH_BYTES_MAX


@pytest.mark.parametrize("mutated", [False, True], ids=["valid", "mutated"])
def test_random_requests_of_every_api_leave_the_broker_healthy(
    target: Target, mutated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    messages = Messages(random.Random(SEED + mutated), target.prepare(TOPICS))
    keys = list(APIS)
    sent = 0
    while sent < FRAMES:
        with target.peer() as peer:
            outcome = Outcome.ANSWERED
            while outcome is Outcome.ANSWERED and sent < FRAMES:
                key: ApiKey = keys[sent % len(keys)]
                frame = messages.frame(key)
                data = mutated_frame(messages.random, frame) if mutated else frame
                sent += 1
                peer.send(data)
                outcome = peer.outcome()
                if sent % 10 == 0:
                    target.check_health(f"frame {sent}: {key.name} {data.hex()}")
    target.check_health()
    assert target.memory_growth_bytes < MEMORY_GROWTH_BYTES_MAX
    failures = [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]
    assert not failures, failures[0].exc_text or failures[0].getMessage()
