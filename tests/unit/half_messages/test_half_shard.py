"""The decisions of a shard of half messages: what is stored, checked, moved, given up and remembered."""

import tracemalloc

import pytest
from half_shard_driver import GROUP, START_MS, TARGET, DrivenHalfShard

from zhumq.half_messages.checks import CHECKS_UNANSWERED_MAX
from zhumq.half_messages.message import ENDED, HalfState
from zhumq.half_messages.persisted import STATE_OF, STATUS_OF, body_of, decode_key, state_record
from zhumq.half_messages.requests import MarkFailed, Problem
from zhumq.half_messages.settings import HalfSettings
from zhumq.half_messages.shard import ENDED_MAX, ENDED_MS
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer, StateRecord

PRODUCER = Producer(7, 0)
NEXT = Producer(7, 1)


@pytest.fixture
def shard() -> DrivenHalfShard:
    return DrivenHalfShard()


def test_a_committed_message_is_handed_out_once_and_is_sent_when_its_transaction_is(
    shard: DrivenHalfShard,
) -> None:
    waiting = shard.await_committed()
    assert shard.prepare("a").problem is None
    assert shard.listed() == {"a": "pending"}
    assert not shard.messages(waiting)
    assert shard.commit("a").problem is None
    (message,) = shard.messages(waiting)
    assert (message.id, message.target, message.offset) == ("a", TARGET, 0)
    staged = shard.log[message.offset][1]
    assert isinstance(staged, StateRecord)
    assert staged.value is not None
    body = body_of(staged.value)
    assert body is not None
    assert body.value == b"v"
    assert shard.mark_sent("a", producer=PRODUCER).problem is None
    again = shard.await_committed()
    assert [each.id for each in shard.messages(again)] == []  # The transaction may be committed.
    shard.end_transaction(PRODUCER, is_commit=True)
    assert shard.listed() == {}
    assert shard.listed(id="a") == {"a": "sent"}
    assert not shard.messages(shard.await_committed())


def test_an_aborted_transaction_frees_its_messages_and_wakes_the_mover(
    shard: DrivenHalfShard,
) -> None:
    shard.prepare("a")
    shard.commit("a")
    assert shard.messages(shard.await_committed())
    shard.mark_sent("a", producer=PRODUCER)
    shard.messages(shard.await_committed())  # reports that there are marks
    waiting = shard.await_committed()
    assert not shard.messages(waiting)
    shard.end_transaction(PRODUCER, is_commit=False)
    assert [each.id for each in shard.messages(waiting)] == ["a"]
    assert shard.mark_sent("a", producer=NEXT).problem is None


def test_a_message_that_is_marked_is_marked_no_second_time(shard: DrivenHalfShard) -> None:
    shard.prepare("a")
    shard.commit("a")
    shard.mark_sent("a", producer=PRODUCER)
    assert shard.mark_sent("a", producer=NEXT).problem is Problem.INVALID
    assert shard.ask(MarkFailed(id="a", reason="late")).problem is Problem.INVALID
    shard.end_transaction(PRODUCER, is_commit=True)
    assert shard.mark_sent("a", producer=NEXT).problem is Problem.INVALID


def test_a_new_leader_knows_of_the_open_transaction(shard: DrivenHalfShard) -> None:
    shard.prepare("a")
    shard.commit("a")
    shard.mark_sent("a", producer=PRODUCER)
    shard.restart()
    reported = shard.answers[shard.await_committed()]
    assert getattr(reported, "is_marked", False)
    assert not getattr(reported, "messages", None)
    waiting = shard.await_committed()
    shard.end_transaction(PRODUCER, is_commit=False)
    assert [each.id for each in shard.messages(waiting)] == ["a"]


@pytest.mark.parametrize("restarts", [False, True])
def test_decisions_may_be_repeated_and_not_reversed(shard: DrivenHalfShard, restarts: bool) -> None:
    for message_id in ("committed", "sent", "rolled-back"):
        shard.prepare(message_id)
    shard.commit("committed")
    shard.commit("sent")
    shard.mark_sent("sent", producer=PRODUCER)
    shard.end_transaction(PRODUCER, is_commit=True)
    shard.roll_back("rolled-back")
    if restarts:
        shard.restart()
    for message_id in ("committed", "sent"):
        assert shard.commit(message_id).problem is None
        assert shard.roll_back(message_id).problem is Problem.DECIDED
    assert shard.roll_back("rolled-back").problem is None
    refused = shard.commit("rolled-back")
    assert refused.problem is Problem.DECIDED
    assert "it was rolled back" in refused.message
    assert shard.commit("never").problem is Problem.UNKNOWN_ID
    assert shard.commit("committed", group="another").problem is Problem.UNKNOWN_ID


def test_prepare_may_be_repeated_while_it_is_pending(shard: DrivenHalfShard) -> None:
    shard.prepare("a")
    records = len(shard.log)
    assert shard.prepare("a").problem is None
    assert len(shard.log) == records
    assert shard.prepare("a", group="another").problem is Problem.DECIDED
    shard.commit("a")
    assert shard.prepare("a").problem is Problem.DECIDED
    assert shard.prepare("").problem is Problem.INVALID
    assert shard.prepare("x" * 65).problem is Problem.INVALID
    assert shard.prepare("b", group="").problem is Problem.INVALID


def test_the_number_of_messages_is_bounded() -> None:
    shard = DrivenHalfShard(HalfSettings(pending_max=2))
    assert shard.prepare("a").problem is None
    assert shard.prepare("b").problem is None
    refused = shard.prepare("c")
    assert refused.problem is Problem.TOO_MANY
    assert "half.message.pending.max" in refused.message
    shard.roll_back("a")
    assert shard.prepare("c").problem is None


# Checks


def test_a_silent_producer_is_asked_first_after_6_s_then_every_30_s_at_most_15_times(
    shard: DrivenHalfShard,
) -> None:
    shard.set_live()
    shard.prepare("a")
    asked_ms = []
    for number in range(1, 16):
        waiting = shard.await_checks()
        while not shard.messages(waiting):
            shard.pass_time(1_000)
        (message,) = shard.messages(waiting)
        assert message.checks == number
        asked_ms.append(shard.now_ms - START_MS)
    assert asked_ms == [6_000 + 30_000 * number for number in range(15)]
    waiting = shard.await_checks()
    shard.pass_time(29_999)
    assert shard.listed() == {"a": "pending"}
    shard.pass_time(1)
    assert not shard.messages(waiting)
    assert shard.listed() == {"a": "given-up"}
    assert "15 checks" in shard.shard.messages["a"].reason
    refused = shard.commit("a")
    assert refused.problem is Problem.DECIDED
    assert "an operator can commit it" in refused.message
    assert shard.commit("a", group="").problem is None
    assert shard.listed() == {"a": "committed"}


def test_the_count_of_checks_survives_a_restart() -> None:
    shard = DrivenHalfShard(HalfSettings(checks_max=2))
    shard.set_live()
    shard.prepare("a")
    shard.await_checks()
    shard.pass_time(6_000)
    shard.restart()
    shard.set_live()
    waiting = shard.await_checks()
    shard.pass_time(29_999)
    assert not shard.messages(waiting)
    shard.pass_time(1)
    assert [each.checks for each in shard.messages(waiting)] == [2]
    shard.restart()
    shard.pass_time(30_000)
    assert shard.listed() == {"a": "given-up"}


def test_a_group_without_a_live_producer_is_not_asked_and_loses_nothing(
    shard: DrivenHalfShard,
) -> None:
    shard.prepare("a")
    waiting = shard.await_checks()
    shard.pass_time(24 * 3_600_000)
    assert not shard.messages(waiting)
    shard.set_live(group="another")
    assert not shard.messages(waiting)
    shard.set_live()
    assert [each.checks for each in shard.messages(waiting)] == [1]  # at once, as it is overdue
    shard.set_live(is_live=False)
    again = shard.await_checks()
    shard.pass_time(3_600_000)
    assert not shard.messages(again)
    assert shard.listed() == {"a": "pending"}


def test_what_no_producer_comes_back_for_is_given_up_after_the_retention_and_then_forgotten() -> (
    None
):
    shard = DrivenHalfShard(HalfSettings(retention_ms=3_600_000))
    shard.prepare("a")
    shard.pass_time(3_600_000 - 1)
    assert shard.listed() == {"a": "pending"}
    shard.pass_time(30_001)
    assert shard.listed() == {"a": "given-up"}
    assert "no producer of the group was connected" in shard.shard.messages["a"].reason
    shard.pass_time(3_600_000)
    assert shard.listed() == {}
    assert shard.commit("a").problem is Problem.UNKNOWN_ID
    shard.restart()
    assert shard.listed() == {}


def test_a_decision_ends_the_checks(shard: DrivenHalfShard) -> None:
    shard.set_live()
    shard.prepare("a")
    shard.prepare("b")
    waiting = shard.await_checks()
    shard.pass_time(6_000)
    assert {each.id for each in shard.messages(waiting)} == {"a", "b"}
    shard.commit("a")
    shard.roll_back("b")
    waiting = shard.await_checks()
    shard.pass_time(600_000)
    assert not shard.messages(waiting)


def test_checks_that_wait_for_their_turn_are_not_counted(shard: DrivenHalfShard) -> None:
    shard.set_live()
    count = CHECKS_UNANSWERED_MAX + 1
    for number in range(count):
        shard.prepare(str(number))
    first = shard.await_checks()
    shard.pass_time(6_000)
    assert len(shard.messages(first)) == CHECKS_UNANSWERED_MAX
    second = shard.await_checks()
    shard.pass_time(29_000)
    assert not shard.messages(second)
    last = str(count - 1)
    assert shard.shard.messages[last].checks == 0
    shard.answer_unknown("0")
    assert [each.id for each in shard.messages(second)] == [last]


# Moving


def test_partitions_that_are_avoided_do_not_hold_up_others(shard: DrivenHalfShard) -> None:
    shard.prepare("a")
    shard.commit("a")
    assert not shard.messages(shard.await_committed(TARGET))
    waiting = shard.await_committed(TopicPartition("another", 0))
    assert [each.id for each in shard.messages(waiting)] == ["a"]


def test_a_message_that_fails_is_kept_for_an_operator(shard: DrivenHalfShard) -> None:
    for message_id in ("a", "b"):
        shard.prepare(message_id)
        shard.commit(message_id)
        assert shard.ask(MarkFailed(id=message_id, reason="the topic is gone")).problem is None
    shard.restart()
    shard.pass_time(30 * 24 * 3_600_000)
    assert shard.listed() == {"a": "failed", "b": "failed"}
    assert shard.shard.messages["a"].reason == "the topic is gone"
    assert shard.commit("a").problem is None  # The producer did commit it.
    assert shard.listed()["a"] == "failed"
    assert shard.roll_back("a").problem is Problem.DECIDED
    assert shard.commit("a", group="").problem is None
    assert [each.id for each in shard.messages(shard.await_committed())] == ["a"]
    assert shard.roll_back("b", group="").problem is None
    assert shard.listed() == {"a": "committed"}


def test_a_second_request_that_waits_replaces_the_first(shard: DrivenHalfShard) -> None:
    for wait in (shard.await_checks, shard.await_committed):
        first = wait()
        wait()
        assert first in shard.answers
        assert not shard.messages(first)


# Memory and records


def test_decisions_are_remembered_for_a_while_and_in_bounded_number(
    shard: DrivenHalfShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard.prepare("a")
    shard.roll_back("a")
    shard.pass_time(ENDED_MS - 1)
    assert shard.roll_back("a").problem is None
    shard.pass_time(1)
    assert shard.roll_back("a").problem is Problem.UNKNOWN_ID
    assert ENDED_MAX == 100_000
    monkeypatch.setattr("zhumq.half_messages.shard.ENDED_MAX", 10)
    for number in range(30):
        shard.prepare(str(number))
        shard.roll_back(str(number))
        shard.pass_time(0)
    assert len(shard.shard.ended) == 10
    assert shard.roll_back("29").problem is None


def test_a_list_is_bounded_and_filtered(shard: DrivenHalfShard) -> None:
    for number in range(5):
        shard.prepare(str(number))
    shard.prepare("x", group="another")
    shard.commit("3")
    assert list(shard.listed(limit=2)) == ["0", "1"]
    assert list(shard.listed(group="another")) == ["x"]
    assert shard.listed(states=frozenset({HalfState.COMMITTED})) == {"3": "committed"}
    assert shard.listed(id="nothing") == {}


def test_a_pending_message_takes_less_than_a_kilobyte_whatever_its_body() -> None:
    count = 2_000
    shard = DrivenHalfShard()
    shard.prepare("first")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            shard.prepare(f"{number:032}", value=bytes(10_000))
            shard.log.clear()  # The disk holds it.
            shard.answers.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 1_000


def test_records_of_other_versions_are_passed_over(shard: DrivenHalfShard) -> None:
    shard.prepare("a")
    message = shard.shard.messages["a"]
    key = state_record(message).key
    for record in (
        StateRecord(key=b"", value=b""),
        StateRecord(key=b"\0\x07\0\x01a", value=b"x"),
        StateRecord(key=b"\0\0\0\x09a", value=b"x"),
        StateRecord(key=key, value=b"\0\x09"),
        StateRecord(key=key, value=b""),
        StateRecord(key=b"\0\0\0\x01b", value=b"\0\x09"),
    ):
        shard.shard.replay(record, shard.now_ms)
    assert shard.listed() == {"a": "pending"}


def test_each_state_has_a_number_and_a_record() -> None:
    assert set(STATUS_OF) == set(HalfState)
    assert len(STATE_OF) == len(HalfState)
    assert set(HalfState) > ENDED
    shard = DrivenHalfShard()
    shard.prepare("a")
    assert decode_key(state_record(shard.shard.messages["a"]).key) == (1, "a")
    assert shard.shard.messages["a"].group == GROUP
