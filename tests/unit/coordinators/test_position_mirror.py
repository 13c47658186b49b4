"""Positions of push groups are committed in the end, also where a commit fails once."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

import zhumq.coordinators.group_positions as module
from zhumq.coordinators.delivery_seam import Owner
from zhumq.coordinators.group_positions import CommitRefused, PositionMirror
from zhumq.model.errors import BrokerError, CoordinatorNotAvailable

OWNER = Owner(member="ann", epoch=3)
SECONDS_MAX = 10


class Coordinator:
    """`Positions` whose next commits fail with the given errors."""

    def __init__(self, *failures: BrokerError) -> None:
        self._failures = list(failures)
        self.tries: list[int] = []
        self.position: int | None = None
        self.on_try: Callable[[], None] = lambda: None

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        return self.position

    async def commit(
        self, group: str, topic: str, partition: int, offset: int, owner: Owner
    ) -> None:
        assert (group, topic, partition, owner) == ("g", "t", 0, OWNER)
        self.tries.append(offset)
        self.on_try()
        if self._failures:
            raise self._failures.pop(0)
        self.position = offset


@pytest.fixture(autouse=True)
def _quick_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIRROR_SECONDS", 0.001)


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


async def until(fact: Callable[[], bool]) -> None:
    while not fact():
        await asyncio.sleep(0.001)


def test_a_position_that_could_not_be_committed_is_committed_later() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(*[CoordinatorNotAvailable("loading")] * 3)
        mirror = PositionMirror(coordinator, "g", "t", 0)
        mirror.moved(7, OWNER)
        await mirror.flush()
        assert coordinator.position is None
        await until(lambda: coordinator.position == 7)
        assert coordinator.tries == [7, 7, 7, 7]

    run(scenario)


def test_a_newer_position_takes_the_place_of_one_that_could_not_be_committed() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(CoordinatorNotAvailable("loading"))
        mirror = PositionMirror(coordinator, "g", "t", 0)
        mirror.moved(7, OWNER)
        coordinator.on_try = lambda: mirror.moved(9, OWNER) if len(coordinator.tries) == 1 else None
        await mirror.flush()
        await until(lambda: coordinator.position == 9)
        assert coordinator.tries == [7, 9]

    run(scenario)


@pytest.mark.parametrize("closes", [False, True])
def test_a_commit_is_not_repeated_when_it_is_refused_or_the_share_partition_closes(
    closes: bool,
) -> None:
    async def scenario() -> None:
        failure = CoordinatorNotAvailable("loading") if closes else CommitRefused("replaced")
        coordinator = Coordinator(failure)
        mirror = PositionMirror(coordinator, "g", "t", 0)
        coordinator.on_try = mirror.close if closes else lambda: None
        mirror.moved(7, OWNER)
        await mirror.flush()
        coordinator.on_try = lambda: None
        # Nothing is left to commit, and no timer would start one.
        await mirror.flush()
        assert coordinator.tries == [7]

    run(scenario)
