"""Rounds of groups with filters: few groups never wait, many wait together, and all of them are woken."""

import asyncio
from collections.abc import Callable

import pytest
from tests.manual_time import ManualClock, advance, run_in_manual_time

from zhumq.coordinators.filter_rounds import (
    LOOKS_PER_SECOND,
    PAUSE_MS_MAX,
    WOKEN_TOGETHER,
    FilterPace,
    FilterRounds,
    Looker,
)


class Groups:
    """Groups on one partition, each with its position; they look when they are woken."""

    def __init__(self, clock: ManualClock, count: int) -> None:
        self.log_end = 0
        self.rounds = FilterRounds(FilterPace(clock), lambda: self.log_end)
        self.positions = [0] * count
        self.looks = 0
        self.lookers = [Looker(self._look_of(number)) for number in range(count)]

    def _look_of(self, number: int) -> Callable[[], None]:
        return lambda: self.look(number)

    def look(self, number: int) -> None:
        self.looks += 1
        while self.positions[number] < self.log_end:
            end = self.rounds.end_for(self.lookers[number], self.positions[number])
            if end is None:
                return
            assert end > self.positions[number]
            self.positions[number] = end

    def add(self, messages: int) -> None:
        """Messages come, as a partition tells the groups that do not wait."""
        self.log_end += messages
        for number, looker in enumerate(self.lookers):
            if not looker.is_waiting:
                self.look(number)


def of_a_busy_broker(clock: ManualClock, count: int) -> Groups:
    """Groups that have to wait for the next round."""
    groups = Groups(clock, count)
    # The first round counts them, and the second one begins the pause.
    for _ in range(3):
        groups.add(1)
    assert all(looker.is_waiting for looker in groups.lookers)
    assert groups.positions == [2] * count
    return groups


async def pass_time(milliseconds: int, groups: Groups) -> None:
    await advance(milliseconds)
    # The event loop takes its turns while they are woken, some at a time.
    for _ in range(len(groups.lookers) // WOKEN_TOGETHER + 1):
        await asyncio.sleep(0)


def test_a_few_groups_look_at_every_batch() -> None:
    async def scenario(clock: ManualClock) -> None:
        groups = Groups(clock, 9)
        for _ in range(20):
            groups.add(5)
            assert groups.positions == [groups.log_end] * 9
            await advance(10)

    run_in_manual_time(scenario)


def test_many_groups_look_once_in_a_pause_and_up_to_the_same_offset() -> None:
    async def scenario(clock: ManualClock) -> None:
        count = LOOKS_PER_SECOND // 4  # a pause of 250 ms
        groups = Groups(clock, count)
        for _ in range(100):  # 10 s
            groups.add(5)
            await pass_time(100, groups)
            assert len(set(groups.positions)) == 1
        # At the beginning of a round, and to see that there is nothing more.
        assert groups.looks < 2.2 * LOOKS_PER_SECOND * 10
        await pass_time(PAUSE_MS_MAX, groups)
        assert groups.positions == [groups.log_end] * count
        assert not any(looker.is_waiting for looker in groups.lookers)

    run_in_manual_time(scenario)


def test_messages_after_a_quiet_time_are_looked_at_at_once() -> None:
    async def scenario(clock: ManualClock) -> None:
        groups = Groups(clock, LOOKS_PER_SECOND)
        for _ in range(5):
            groups.add(1)
            assert groups.positions == [groups.log_end] * LOOKS_PER_SECOND
            await advance(PAUSE_MS_MAX + 100)

    run_in_manual_time(scenario)


@pytest.mark.parametrize("count", [LOOKS_PER_SECOND, 10 * LOOKS_PER_SECOND])
def test_no_pause_is_longer_than_its_limit(count: int) -> None:
    async def scenario(clock: ManualClock) -> None:
        groups = of_a_busy_broker(clock, count)
        await pass_time(PAUSE_MS_MAX, groups)
        assert groups.positions == [groups.log_end] * count

    run_in_manual_time(scenario)


def test_the_event_loop_takes_its_turns_while_groups_are_woken() -> None:
    async def scenario(clock: ManualClock) -> None:
        groups = of_a_busy_broker(clock, 10 * WOKEN_TOGETHER)
        before, most = groups.looks, 0
        clock.ms += PAUSE_MS_MAX
        while groups.positions[-1] < groups.log_end:
            await asyncio.sleep(0)
            most = max(most, groups.looks - before)
            before = groups.looks
        assert most <= WOKEN_TOGETHER

    run_in_manual_time(scenario)
