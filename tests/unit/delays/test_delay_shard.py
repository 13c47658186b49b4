"""A shard of delayed messages: stages once, hands out what is due, and survives a crash at any point."""

import random
from collections import Counter

import pytest
from delay_shard_driver import SOURCE, START_MS, DrivenDelayShard, MemoryRuns

from zhumq.delays.due_index import DueIndex, Entry
from zhumq.delays.held import HeldMessages
from zhumq.delays.persisted import MessageKey, Position
from zhumq.delays.requests import Drop, Due, Ended, Stage, Staged, TakeDue, refusal
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import StateRecord


@pytest.fixture
def driven() -> DrivenDelayShard:
    return DrivenDelayShard()


def test_an_unknown_partition_gets_its_first_position_once(driven: DrivenDelayShard) -> None:
    assert driven.stage(None, Position(17)) == Position(17)
    assert driven.stage(None, Position(99)) == Position(17)
    driven.crash()
    assert driven.stage(None, Position(99)) == Position(17)


def test_messages_are_staged_once_by_position(driven: DrivenDelayShard) -> None:
    first, second = Position(0), Position(3)
    driven.stage(None, first)
    assert driven.stage(first, second, 10, 20) == second
    # The same again, and a late request of an earlier leader: the shard says where it is, and stages nothing.
    assert driven.stage(first, second, 10, 20) == second
    assert driven.stage(Position(1), Position(9), 30) == second
    assert driven.pending() == [10, 20]
    driven.crash()
    assert driven.stage(first, second, 10, 20) == second
    assert driven.pending() == [10, 20]
    assert driven.stage(second, Position(3, 2), 5, 6) == Position(3, 2)
    assert driven.stage(second, Position(3, 2), 5, 6) == Position(3, 2)
    assert driven.pending() == [5, 6, 10, 20]


def test_nothing_is_staged_for_a_partition_without_a_position(driven: DrivenDelayShard) -> None:
    assert driven.stage(Position(5), Position(6), 10) == Position(-1)
    assert driven.pending() == []


def test_messages_are_handed_out_in_the_order_of_their_due_times(driven: DrivenDelayShard) -> None:
    driven.fill(30, 10, 20, 10, 40)
    assert driven.take(9) == []
    answer = driven.ask(TakeDue(now_ms=START_MS + 9))
    assert isinstance(answer, Due)
    assert answer.next_due_ms == START_MS + 10
    assert driven.take(30) == [10, 10, 20, 30]
    # They were not moved: they are handed out again.
    assert driven.take(30) == [10, 10, 20, 30]


def test_a_moved_message_is_gone_once_the_transaction_is_committed(
    driven: DrivenDelayShard,
) -> None:
    driven.fill(10, 20)
    taken = driven.take_entries(10)
    assert driven.mark(taken).code is ErrorCode.NONE
    assert driven.take(10) == []  # in a transaction that may be committed
    assert driven.shard.pending == 2
    driven.end(is_commit=True)
    assert driven.shard.pending == 1
    assert driven.take(100) == [20]
    driven.crash()
    assert driven.shard.pending == 1
    assert driven.take(100) == [20]
    assert driven.shard.pending == 1


def test_an_aborted_move_is_tried_again(driven: DrivenDelayShard) -> None:
    driven.fill(10)
    driven.mark(driven.take_entries(10))
    driven.end(is_commit=False)
    assert driven.take(10) == [10]
    driven.crash()
    assert driven.take(10) == [10]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_leader_waits_for_the_end_of_an_open_transaction(
    driven: DrivenDelayShard, is_commit: bool
) -> None:
    driven.fill(10, 20)
    driven.mark(driven.take_entries(10))
    driven.crash()
    answer = driven.ask(TakeDue(now_ms=START_MS + 30))
    assert isinstance(answer, Due)
    assert answer.is_marked
    assert answer.entries == ()  # The message that is marked may have to go before them.
    driven.end(is_commit=is_commit)
    assert driven.take(30) == ([20] if is_commit else [10, 20])


def test_a_message_that_is_put_off_comes_later_and_keeps_its_key(driven: DrivenDelayShard) -> None:
    driven.fill(10, 20)
    (first, second) = driven.take_entries(25)
    put_off = {first.serial: START_MS + 500}
    answer = driven.ask(TakeDue(now_ms=START_MS + 26, put_off=put_off))
    assert isinstance(answer, Due)
    assert [each.serial for each in answer.entries] == [second.serial]
    assert [each.serial for each in driven.take_entries(499)] == [second.serial]
    assert [each.serial for each in driven.take_entries(500)] == [second.serial, first.serial]
    # Its record has the original time, and so does the mark.
    driven.mark((first, second))
    driven.end(is_commit=True)
    assert driven.shard.pending == 0
    driven.crash()
    assert driven.take(1000) == []


def test_a_producer_whose_marks_count_is_given_the_messages_behind_them(
    driven: DrivenDelayShard,
) -> None:
    driven.fill(10, 20)
    driven.mark(driven.take_entries(10))
    answer = driven.ask(TakeDue(now_ms=START_MS + 30, marks_count=True))
    assert isinstance(answer, Due)
    assert [each.due_ms - START_MS for each in answer.entries] == [20]
    driven.end(is_commit=True)
    assert driven.shard.pending == 1


def test_messages_that_wait_for_a_partition_keep_their_order_apart_from_the_others(
    driven: DrivenDelayShard,
) -> None:
    waited_for = TopicPartition("orders", 0)
    driven.fill(*range(40, 0, -1))
    first = driven.take_entries(30)
    held = {each.serial: waited_for for each in first[10:]}
    answer = driven.ask(TakeDue(now_ms=START_MS + 30, held=held, avoided={waited_for}))
    assert isinstance(answer, Due)
    assert answer.entries == first[:10]
    assert answer.resumed == ()
    assert answer.held == {waited_for}
    # They are still pending, and listed, and due.
    assert driven.shard.pending == 40
    assert driven.pending() == list(range(11, 41))
    assert driven.shard.next_due_ms == START_MS + 11
    assert driven.shard.in_memory >= 20
    # One that comes later waits behind them, and one that should have come before them goes first.
    late = {each.serial: waited_for for each in (first[4], driven.take_entries(31)[-1])}
    driven.ask(TakeDue(now_ms=0, held=late, avoided={waited_for}))
    answer = driven.ask(TakeDue(now_ms=0))
    assert isinstance(answer, Due)
    assert {partition for partition, _ in answer.resumed} == {waited_for}
    dues = [entry.due_ms - START_MS for _, entry in answer.resumed]
    assert dues == sorted(dues)
    assert {5, 31} <= set(dues)
    driven.crash()
    assert driven.take(40) == list(range(1, 41))


def test_partitions_that_are_tried_again_get_equal_shares() -> None:
    runs = MemoryRuns()
    held = HeldMessages(lambda entries: DueIndex(runs, run_entries_min=entries))
    partitions = [TopicPartition("orders", each) for each in range(4)]
    for number in range(200):
        held.add(partitions[0], Entry(number, number, number))
    for partition in partitions[1:]:
        held.add(partition, Entry(5, 1_000 + partition.partition, 0))
    taken = held.take({partitions[1]}, 30)
    assert Counter(partition for partition, _ in taken) == {
        partitions[0]: 10,
        partitions[2]: 1,
        partitions[3]: 1,
    }
    # With more partitions than places each has its turn.
    for partition in partitions[1:]:
        held.add(partition, Entry(6, 2_000 + partition.partition, 0))
    seen = {partition for _ in range(4) for partition, _ in held.take((), 1)}
    assert seen == set(partitions)
    held.close()
    assert runs.left == 0


def test_only_what_is_handed_out_can_be_marked_or_dropped(driven: DrivenDelayShard) -> None:
    driven.fill(10, 20)
    (entry, *_) = driven.entries()
    assert driven.mark((entry,)).code is ErrorCode.INVALID_REQUEST
    key = MessageKey(entry.due_ms, entry.serial)
    refused = driven.ask(Drop(key=key))
    assert isinstance(refused, Ended)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert len(driven.take_entries(10)) == 1
    dropped = driven.ask(Drop(key=key))
    assert isinstance(dropped, Ended)
    assert dropped.keys == (key,)
    assert driven.take(100) == [20]


def test_a_message_is_cancelled_until_it_is_due(driven: DrivenDelayShard) -> None:
    driven.fill(10, 20, 30)
    assert driven.take(10) == [10]
    due, *later = driven.entries()  # without the one that is handed out
    assert [each.due_ms - START_MS for each in (due, *later)] == [20, 30]
    assert driven.cancel(due) == 1
    assert driven.pending() == [30]
    driven.now_ms = START_MS + 30
    assert driven.cancel(*later) == 0
    driven.crash()
    assert driven.take(100) == [10, 30]


def test_a_clock_that_goes_back_hands_out_nothing_twice(driven: DrivenDelayShard) -> None:
    driven.fill(10, 20)
    driven.mark(driven.take_entries(1_000_000))  # The clock jumps ahead.
    driven.end(is_commit=True)
    assert driven.take(5) == []  # And back.
    driven.fill(15)
    assert driven.take(14) == []
    assert driven.take(15) == [15]


def test_compaction_changes_nothing(driven: DrivenDelayShard) -> None:
    driven.fill(*range(50))
    driven.mark(driven.take_entries(19))
    driven.end(is_commit=True)
    assert driven.cancel(*driven.entries()[10:20]) == 10
    expected = [*range(20, 30), *range(40, 50)]
    assert driven.pending() == expected
    driven.compact()
    driven.crash()
    assert driven.pending() == expected
    assert driven.take(1_000) == expected
    assert driven.shard.pending == len(expected)


def test_unreadable_records_are_ignored(driven: DrivenDelayShard) -> None:
    for key in (b"", b"\0", b"\0\0\1", b"\0\1xx", b"\0\7x"):
        driven.shard.replay(StateRecord(key=key, value=b"?", offset=0), 0)
        driven.shard.replay(StateRecord(key=key, value=None, offset=0), 0)
        driven.shard.replay_pending(1, StateRecord(key=key, value=None, offset=0), 0)
    driven.shard.end_transaction(1, 0, is_commit=True)
    assert driven.shard.pending == 0


def test_a_broker_that_does_not_lead_refuses() -> None:
    code = ErrorCode.NOT_COORDINATOR
    assert refusal(TakeDue(now_ms=0), code) == Due(code=code)
    assert refusal(Stage(source=SOURCE, topic="", begins=None, until=Position(0)), code) == Staged(
        code=code
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_message_ends_once_whatever_happens(seed: int) -> None:
    """Random staging, moves, aborts, cancellations, compactions and crashes, against a model."""
    draw = random.Random(seed)
    driven = DrivenDelayShard(run_entries_min=draw.choice((2, 5, 50)))
    now, sent, delivered, cancelled = 0, 0, [], 0
    while True:
        now += draw.randrange(20)
        step = draw.random()
        if sent < 300 and step < 0.4:
            delays = [now + draw.randrange(1, 400) for _ in range(draw.randrange(1, 8))]
            driven.fill(*delays)
            sent += len(delays)
        elif step < 0.75:
            taken = driven.take_entries(now)
            if taken:
                driven.mark(taken)
                crashes = draw.random() < 0.2
                if crashes:
                    driven.crash()
                is_commit = draw.random() < 0.7
                driven.end(is_commit=is_commit)
                if is_commit:
                    delivered += [each.serial for each in taken]
                    assert all(each.due_ms <= START_MS + now for each in taken)
        elif step < 0.85:
            driven.now_ms = START_MS + now
            entries = driven.entries()
            if entries:
                cancelled += driven.cancel(draw.choice(entries))
        elif step < 0.95:
            driven.crash()
        else:
            driven.compact()
        if sent >= 300 and not driven.pending():
            now = 1_000_000
            if not driven.take_entries(now):
                break
    assert len(delivered) == len(set(delivered))
    assert len(delivered) + cancelled == sent
    assert driven.shard.pending == 0
