"""Deadlines: the earliest first, the last setting counts, and the heap stays small."""

import random

from zhumq.model.deadlines import Deadlines


def popped(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    keys = []
    while (key := deadlines.pop_due(now_ms)) is not None:
        keys.append(key)
    return keys


def test_without_keys_there_is_no_deadline() -> None:
    assert Deadlines[str]().next_deadline_ms is None
    assert Deadlines[str]().pop_due(10**9) is None


def test_keys_fall_due_in_the_order_of_their_times() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("late", 30)
    deadlines.set("early", 10)
    deadlines.set("also early", 10)
    assert deadlines.next_deadline_ms == 10
    assert popped(deadlines, 9) == []
    assert popped(deadlines, 30) == ["early", "also early", "late"]
    assert deadlines.next_deadline_ms is None


def test_the_last_setting_counts_whether_later_or_earlier() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    deadlines.set("b", 50)
    deadlines.set("b", 20)
    assert deadlines.next_deadline_ms == 20
    assert popped(deadlines, 49) == ["b"]
    assert popped(deadlines, 50) == ["a"]


def test_a_cancelled_key_never_falls_due_and_can_be_set_again() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    assert deadlines.next_deadline_ms is None
    deadlines.set("a", 20)
    assert popped(deadlines, 100) == ["a"]


def test_a_key_that_is_moved_a_million_times_costs_one_entry() -> None:
    deadlines = Deadlines[str]()
    for at_ms in range(10_000):
        deadlines.set("member", at_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.next_deadline_ms == 9_999


def test_it_agrees_with_a_plain_dictionary() -> None:
    draw = random.Random(7)
    deadlines, model = Deadlines[int](), dict[int, int]()
    for now_ms in range(3_000):
        key = draw.randrange(20)
        match draw.randrange(3):
            case 0 | 1:
                due_ms = now_ms + draw.randrange(60)
                deadlines.set(key, due_ms)
                model[key] = due_ms
            case _:
                deadlines.cancel(key)
                model.pop(key, None)
        assert deadlines.next_deadline_ms == min(model.values(), default=None)
        assert len(deadlines) == len(model)
        while (due := deadlines.pop_due(now_ms)) is not None:
            assert model.pop(due) <= now_ms
        assert all(due_ms > now_ms for due_ms in model.values())
