"""Directed schedules violate no invariant with the real cores."""

from collections.abc import Callable

import pytest
from schedules import SCHEDULES
from schedules_of_acceptance import ACCEPTANCE_SCHEDULES
from schedules_of_availability import AVAILABILITY_SCHEDULES

ALL = (*SCHEDULES, *ACCEPTANCE_SCHEDULES, *AVAILABILITY_SCHEDULES)


@pytest.mark.parametrize("schedule", ALL, ids=lambda each: each.__name__)
def test_the_schedule_violates_no_invariant(schedule: Callable[[], None]) -> None:
    schedule()
