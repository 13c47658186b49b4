"""Pending calls: each ends once, at its reply or its deadline, and there are only so many."""

import pytest

from zhumq.client.errors import TooManyCalls
from zhumq.client.pending_calls import PendingCalls


def test_a_call_ends_once() -> None:
    calls: PendingCalls[str] = PendingCalls()
    calls.begin(b"1", "one", due_ms=100)
    assert calls.end(b"1") == "one"
    assert calls.end(b"1") is None  # a second reply
    assert calls.end_due(now_ms=1_000) == []
    assert len(calls) == 0


def test_a_reply_after_the_deadline_ends_nothing() -> None:
    calls: PendingCalls[str] = PendingCalls()
    calls.begin(b"1", "one", due_ms=100)
    calls.begin(b"2", "two", due_ms=200)
    assert calls.next_deadline_ms == 100
    assert calls.end_due(now_ms=99) == []
    assert calls.end_due(now_ms=100) == ["one"]
    assert calls.end(b"1") is None
    assert calls.end(b"2") == "two"


def test_a_reply_to_another_caller_ends_nothing() -> None:
    calls: PendingCalls[str] = PendingCalls()
    calls.begin(b"1", "one", due_ms=100)
    assert calls.end(b"other") is None
    assert len(calls) == 1


def test_calls_are_bounded_and_the_bound_counts_only_those_that_wait() -> None:
    calls: PendingCalls[str] = PendingCalls(2)
    calls.begin(b"1", "one", due_ms=100)
    calls.begin(b"2", "two", due_ms=200)
    with pytest.raises(TooManyCalls, match="2 calls have no reply yet: wait for some, or raise"):
        calls.begin(b"3", "three", due_ms=300)
    calls.end(b"1")
    calls.begin(b"3", "three", due_ms=300)
    assert sorted(calls.end_all()) == ["three", "two"]
    assert calls.next_deadline_ms is None


def test_a_bound_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="pending_max=0 is below 1"):
        PendingCalls(0)
