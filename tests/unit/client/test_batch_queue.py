"""Batches of a partition reach its leader in order, whatever fails in between."""

import random

import pytest

from zhumq.client.batch_queue import REQUEST_BYTES_MAX, Batch, BatchQueue
from zhumq.model.address import Address
from zhumq.model.ids import TopicPartition

A = TopicPartition("t", 0)
B = TopicPartition("t", 1)
HERE = Address("here", 1)
THERE = Address("there", 1)


def batch(place: TopicPartition, number: int, size: int = 10) -> Batch:
    return Batch(place=place, number=number, data=bytes(size))


def test_a_request_has_one_batch_of_each_partition() -> None:
    queue = BatchQueue()
    first, second, other = batch(A, 1), batch(A, 2), batch(B, 3)
    for each in (first, second, other):
        queue.add(each)
    assert queue.take(HERE, {A, B}) == {A: first, B: other}
    assert queue.take(HERE, {A, B}) == {A: second}
    assert not queue.has_waiting
    for each in (first, second, other):
        queue.done(each)
    assert queue.is_empty


def test_only_led_partitions_are_sent_to_a_broker() -> None:
    queue = BatchQueue()
    queue.add(batch(A, 1))
    assert queue.take(HERE, {B}) == {}
    assert queue.sendable() == [A]


def test_failed_batches_are_sent_again_in_order_once_all_are_answered() -> None:
    queue = BatchQueue()
    sent = [batch(A, number) for number in (1, 2, 3)]
    for each in sent:
        queue.add(each)
    for _ in sent:
        queue.take(HERE, {A})
    queue.add(batch(A, 4))
    queue.give_back([sent[0]])
    assert queue.is_behind_failure(A)
    assert queue.sendable() == []  # The others are in flight.
    queue.give_back([sent[2], sent[1]])
    assert not queue.is_behind_failure(A)
    taken = [queue.take(THERE, {A})[A].number for _ in range(4)]
    assert taken == [1, 2, 3, 4]


def test_a_partition_whose_leader_has_changed_waits_for_the_answers_of_the_old_one() -> None:
    queue = BatchQueue()
    first, second = batch(A, 1), batch(A, 2)
    queue.add(first)
    queue.take(HERE, {A})
    queue.add(second)
    assert queue.take(THERE, {A}) == {}
    queue.done(first)
    assert queue.take(THERE, {A}) == {A: second}


def test_a_request_is_bounded_and_a_large_batch_goes_alone() -> None:
    queue = BatchQueue()
    queue.add(batch(A, 1, REQUEST_BYTES_MAX + 1))
    queue.add(batch(B, 2, REQUEST_BYTES_MAX))
    assert set(queue.take(HERE, {A, B})) == {A}
    assert set(queue.take(HERE, {A, B})) == {B}


@pytest.mark.parametrize("seed", range(50))
def test_a_broker_gets_every_batch_once_and_in_order_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)
    queue = BatchQueue()
    places = [TopicPartition("t", index) for index in range(3)]
    leaders = dict.fromkeys(places, HERE)
    logs: dict[TopicPartition, list[int]] = {place: [] for place in places}
    in_flight: dict[Address, list[dict[TopicPartition, Batch]]] = {HERE: [], THERE: []}
    added = 0
    while added < 40 or not queue.is_empty:
        if added < 40 and chance.random() < 0.5:
            queue.add(batch(places[added % 3], added))
            added += 1
        for place in places:
            if chance.random() < 0.05:
                leaders[place] = chance.choice([HERE, THERE])
        address = chance.choice([HERE, THERE])
        led = {place for place, leader in leaders.items() if leader == address}
        if len(in_flight[address]) < 3 and (request := queue.take(address, led)):
            in_flight[address].append(request)
        elif in_flight[address]:
            for place, each in in_flight[address].pop(0).items():
                expected = (logs[place][-1] + 3) if logs[place] else places.index(place)
                is_repeated = each.number in logs[place]
                if each.number == expected and chance.random() < 0.7:
                    logs[place].append(each.number)
                    is_repeated = chance.random() < 0.8  # else the answer is lost
                if is_repeated:
                    queue.done(each)
                else:
                    queue.give_back([each])
    assert logs == {place: list(range(index, 40, 3)) for index, place in enumerate(places)}


def test_clear_gives_all_up() -> None:
    queue = BatchQueue()
    queue.add(batch(A, 1))
    queue.add(batch(B, 2))
    queue.take(HERE, {A})
    queue.clear()
    assert queue.is_empty
