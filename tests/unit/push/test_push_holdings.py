"""What a consumer holds: against a set of offsets, by any sequence of deliveries and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.model.ids import TopicPartition
from zhumq.push.holdings import Holdings, NotHeld

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def test_offsets_are_held_until_they_are_answered() -> None:
    holdings = Holdings()
    holdings.add(PLACE, 10, 19, deadline_ms=100)
    holdings.add(OTHER, 0, 4, deadline_ms=50)
    assert holdings.count == 15
    holdings.answered(PLACE, 12, 13)
    assert holdings.count_of(PLACE) == 8
    holdings.check(PLACE, 10, 11)
    holdings.check(PLACE, 14, 19)
    for first, last in ((12, 12), (11, 12), (13, 14), (9, 10), (19, 20), (50, 60)):
        with pytest.raises(NotHeld):
            holdings.check(PLACE, first, last)
    assert holdings.next_deadline_ms() == 50
    holdings.drop(OTHER)
    assert (holdings.count, holdings.next_deadline_ms()) == (8, 100)


def test_an_extended_range_is_due_later_than_the_rest() -> None:
    holdings = Holdings()
    holdings.add(PLACE, 0, 9, deadline_ms=10)
    holdings.renewed(PLACE, 3, 5, deadline_ms=99)
    assert holdings.count == 10
    overdue = [(piece.first_offset, piece.next_offset) for _, piece in holdings.overdue(50)]
    assert overdue == [(0, 3), (6, 10)]


def test_what_is_taken_back_in_order_goes_from_an_offset_on() -> None:
    holdings = Holdings()
    holdings.add(PLACE, 0, 9, deadline_ms=10)
    holdings.add(PLACE, 20, 29, deadline_ms=10)
    holdings.drop_from(PLACE, 5)
    assert holdings.count == 5
    holdings.check(PLACE, 0, 4)
    holdings.clear()
    assert (holdings.count, list(holdings.overdue(99))) == (0, [])


ranges = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))
steps = st.lists(
    st.tuples(st.sampled_from(["add", "answer", "renew", "drop"]), ranges), max_size=40
)


@given(steps)
def test_holdings_are_a_set_of_offsets(actions: list[tuple[str, tuple[int, int]]]) -> None:
    holdings = Holdings()
    model: set[int] = set()
    for action, (first, last) in actions:
        offsets = set(range(first, last + 1))
        match action:
            case "add":
                holdings.add(PLACE, first, last, deadline_ms=1)
                model |= offsets
            case "answer":
                holdings.answered(PLACE, first, last)
                model -= offsets
            case "renew" if offsets <= model:
                holdings.renewed(PLACE, first, last, deadline_ms=2)
            case "drop":
                holdings.drop_from(PLACE, first)
                model = {offset for offset in model if offset < first}
        assert holdings.count == holdings.count_of(PLACE) == len(model)
        held = {
            offset
            for _, piece in holdings.overdue(9)
            for offset in range(piece.first_offset, piece.next_offset)
        }
        assert held == model
        try:
            holdings.check(PLACE, first, last)
        except NotHeld:
            assert not offsets <= model
        else:
            assert offsets <= model
