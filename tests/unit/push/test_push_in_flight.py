"""In-flight deliveries match a set of offsets after any sequence of deliveries and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.model.ids import TopicPartition
from zhumq.push.in_flight_deliveries import InFlightDeliveries, NotHeld

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def test_offsets_are_in_flight_until_they_are_answered() -> None:
    in_flight_deliveries = InFlightDeliveries()
    in_flight_deliveries.add(PLACE, 10, 19, deadline_ms=100)
    in_flight_deliveries.add(OTHER, 0, 4, deadline_ms=50)
    assert in_flight_deliveries.count == 15
    in_flight_deliveries.remove(PLACE, 12, 13)
    assert in_flight_deliveries.count_of(PLACE) == 8
    in_flight_deliveries.check(PLACE, 10, 11)
    in_flight_deliveries.check(PLACE, 14, 19)
    for first, last in ((12, 12), (11, 12), (13, 14), (9, 10), (19, 20), (50, 60)):
        with pytest.raises(NotHeld):
            in_flight_deliveries.check(PLACE, first, last)
    assert in_flight_deliveries.next_deadline_ms() == 50
    in_flight_deliveries.drop(OTHER)
    assert (in_flight_deliveries.count, in_flight_deliveries.next_deadline_ms()) == (8, 100)


def test_an_extended_range_is_due_later_than_the_rest() -> None:
    in_flight_deliveries = InFlightDeliveries()
    in_flight_deliveries.add(PLACE, 0, 9, deadline_ms=10)
    in_flight_deliveries.extend_deadline(PLACE, 3, 5, deadline_ms=99)
    assert in_flight_deliveries.count == 10
    overdue = [
        (piece.first_offset, piece.next_offset) for _, piece in in_flight_deliveries.overdue(50)
    ]
    assert overdue == [(0, 3), (6, 10)]


def test_drop_from_removes_every_offset_from_one_on() -> None:
    in_flight_deliveries = InFlightDeliveries()
    in_flight_deliveries.add(PLACE, 0, 9, deadline_ms=10)
    in_flight_deliveries.add(PLACE, 20, 29, deadline_ms=10)
    in_flight_deliveries.drop_from(PLACE, 5)
    assert in_flight_deliveries.count == 5
    in_flight_deliveries.check(PLACE, 0, 4)
    in_flight_deliveries.clear()
    assert (in_flight_deliveries.count, list(in_flight_deliveries.overdue(99))) == (0, [])


ranges = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))
steps = st.lists(
    st.tuples(st.sampled_from(["add", "answer", "renew", "drop"]), ranges), max_size=40
)


@given(steps)
def test_in_flight_deliveries_are_a_set_of_offsets(
    actions: list[tuple[str, tuple[int, int]]],
) -> None:
    in_flight_deliveries = InFlightDeliveries()
    model: set[int] = set()
    for action, (first, last) in actions:
        offsets = set(range(first, last + 1))
        match action:
            case "add":
                in_flight_deliveries.add(PLACE, first, last, deadline_ms=1)
                model |= offsets
            case "answer":
                in_flight_deliveries.remove(PLACE, first, last)
                model -= offsets
            case "renew" if offsets <= model:
                in_flight_deliveries.extend_deadline(PLACE, first, last, deadline_ms=2)
            case "drop":
                in_flight_deliveries.drop_from(PLACE, first)
                model = {offset for offset in model if offset < first}
        assert in_flight_deliveries.count == in_flight_deliveries.count_of(PLACE) == len(model)
        held = {
            offset
            for _, piece in in_flight_deliveries.overdue(9)
            for offset in range(piece.first_offset, piece.next_offset)
        }
        assert held == model
        try:
            in_flight_deliveries.check(PLACE, first, last)
        except NotHeld:
            assert not offsets <= model
        else:
            assert offsets <= model
