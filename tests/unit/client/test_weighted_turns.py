"""Weighted turns: proportional, in every order of readiness without starvation."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.client.weighted_turns import WEIGHT_MAX, WeightedTurns

TOPICS = ("a", "b", "c", "d")


def test_topics_that_always_have_messages_get_turns_by_their_weight() -> None:
    turns = WeightedTurns({"urgent": 8, "normal": 1})
    chosen = Counter(turns.choose(("urgent", "normal")) for _ in range(900))
    assert chosen == {"urgent": 800, "normal": 100}


def test_turns_are_spread_and_not_in_blocks() -> None:
    turns = WeightedTurns({"a": 5, "b": 1, "c": 1})
    assert "".join(turns.choose("abc") for _ in range(14)) == "aabacaa" * 2


def test_a_topic_alone_gets_every_turn_and_no_debt() -> None:
    turns = WeightedTurns({"urgent": 8, "normal": 1})
    assert {turns.choose(["normal"]) for _ in range(100)} == {"normal"}
    assert [turns.choose(["urgent", "normal"]) for _ in range(4)] == ["urgent"] * 4


def test_a_topic_earns_nothing_while_it_has_no_messages() -> None:
    turns = WeightedTurns({"a": 1, "b": 1})
    for _ in range(100):
        turns.choose(["a"])
    assert Counter(turns.choose(["a", "b"]) for _ in range(10)) == {"a": 5, "b": 5}


@given(
    weights=st.lists(st.integers(1, 50), min_size=2, max_size=4),
    absences=st.lists(st.sets(st.sampled_from(TOPICS[1:])), max_size=400),
)
def test_a_topic_with_messages_never_waits_longer_than_its_bound(
    weights: list[int], absences: list[set[str]]
) -> None:
    named = dict(zip(TOPICS, weights, strict=False))
    turns = WeightedTurns(named)
    turns_max = 2 * sum(weights) / named["a"] + len(weights)
    waited = 0
    for absent in absences:
        chosen = turns.choose([topic for topic in named if topic not in absent])
        assert chosen not in absent
        waited = 0 if chosen == "a" else waited + 1
        assert waited <= turns_max


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_each_topic_gets_exactly_its_weight_of_a_round(weights: list[int]) -> None:
    named = dict(zip(TOPICS, weights, strict=False))
    turns = WeightedTurns(named)
    for _ in range(3):
        assert Counter(turns.choose(named) for _ in range(sum(weights))) == named


@pytest.mark.parametrize("weight", [0, -1, WEIGHT_MAX + 1, 1.5, True, [0, 1]])
def test_a_weight_that_is_none_is_refused(weight: object) -> None:
    with pytest.raises(ValueError, match=r"the weight of 'a' is a whole number from 1 to 1000"):
        WeightedTurns({"a": weight})  # type: ignore[dict-item]


def test_no_topics_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        WeightedTurns({})
