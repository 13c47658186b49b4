"""The operations behind `zhumq schedule`: list and cancel delayed messages by topic, time and id."""

import time
from collections.abc import Iterator

import pytest
from delay_support import SETTINGS, TOPIC, create_topic, now_ms, read_all, wait_for

import zhumq
from zhumq.admin.errors import NotFound, Refused
from zhumq.testing.broker import RunningBroker, broker

HOUR_MS = 3_600_000
PARTITIONS = 2


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as started:
        create_topic(started.bootstrap, partitions=PARTITIONS)
        yield started


@pytest.fixture
def admin(running: RunningBroker) -> Iterator[zhumq.Admin]:
    with zhumq.Admin(running.bootstrap) as connected:
        yield connected


def schedule(running: RunningBroker, count: int, *, first_ms: int, partition: int = 0) -> list[int]:
    """Messages an hour apart; returns the offsets that their producer got."""
    offsets: list[int] = []
    with zhumq.Producer(running.bootstrap) as producer:
        for number in range(count):
            producer.send(
                TOPIC,
                b"%d" % number,
                partition=partition,
                deliver_at=first_ms + number * HOUR_MS,
                on_sent=lambda _, offset: offsets.append(offset),
            )
    return offsets


def wait_for_pending(admin: zhumq.Admin, count: int) -> None:
    wait_for(
        lambda: len(admin.scheduled(TOPIC, limit=100_000).messages) == count, f"{count} pending"
    )


def test_messages_are_listed_in_the_order_of_their_due_times(
    running: RunningBroker, admin: zhumq.Admin
) -> None:
    assert not admin.scheduled(TOPIC).messages
    first_ms = now_ms() + HOUR_MS
    offsets = schedule(running, 5, first_ms=first_ms)
    schedule(running, 2, first_ms=first_ms + 60_000, partition=1)
    wait_for_pending(admin, 7)
    found = admin.scheduled(TOPIC)
    assert not found.has_more
    dues = [each.due_ms for each in found.messages]
    assert dues == sorted(dues)
    assert dues[:2] == [first_ms, first_ms + 60_000]
    assert [each.offset for each in found.messages if each.partition == 0] == offsets
    assert len(admin.scheduled(TOPIC, partition=1).messages) == 2
    # By the whole id, and by what its producer got.
    for message_id in (found.messages[2].id, f"0:{offsets[1]}"):
        assert admin.scheduled(TOPIC, message_id=message_id).messages == (found.messages[2],)
    assert admin.scheduled(TOPIC, message_id="0:77").messages == ()
    part = admin.scheduled(TOPIC, limit=3)
    assert (len(part.messages), part.has_more) == (3, True)
    timed = admin.scheduled(TOPIC, from_ms=first_ms + HOUR_MS, to_ms=first_ms + 2 * HOUR_MS)
    assert [each.due_ms - first_ms for each in timed.messages] == [HOUR_MS, HOUR_MS + 60_000]


def test_messages_are_cancelled_by_id_by_time_and_all(
    running: RunningBroker, admin: zhumq.Admin
) -> None:
    first_ms = now_ms() + HOUR_MS
    offsets = schedule(running, 6, first_ms=first_ms)
    wait_for_pending(admin, 6)
    one = admin.scheduled(TOPIC).messages[1]
    assert admin.cancel_scheduled(TOPIC, message_id=one.id) == 1
    assert admin.cancel_scheduled(TOPIC, message_id=one.id) == 0
    assert admin.cancel_scheduled(TOPIC, message_id=f"0:{offsets[2]}") == 1
    left = admin.scheduled(TOPIC).messages
    assert [each.offset for each in left] == [offsets[0], *offsets[3:]]
    assert admin.cancel_scheduled(TOPIC, from_ms=first_ms + 4 * HOUR_MS) == 2
    assert admin.cancel_scheduled(TOPIC) == 2
    assert not admin.scheduled(TOPIC).messages


@pytest.mark.thorough
def test_a_cancelled_message_never_arrives_and_the_others_do(
    running: RunningBroker, admin: zhumq.Admin
) -> None:
    due_ms = now_ms() + 6_000
    with zhumq.Producer(running.bootstrap) as producer:
        for number in range(20):
            producer.send(TOPIC, b"%d" % number, partition=0, deliver_at=due_ms + number)
    wait_for_pending(admin, 20)
    for each in admin.scheduled(TOPIC).messages[::2]:
        assert admin.cancel_scheduled(TOPIC, message_id=each.id) == 1
    wait_for(lambda: len(read_all(running.bootstrap)) == 10, "ten messages")
    wait_for_pending(admin, 0)
    assert [each.value for each in read_all(running.bootstrap)] == [
        b"%d" % number for number in range(1, 20, 2)
    ]
    wait_for(lambda: time.time() * 1000 > due_ms + 20, "all would be due")
    assert admin.cancel_scheduled(TOPIC) == 0


def test_bad_requests_are_refused_with_a_reason(admin: zhumq.Admin) -> None:
    with pytest.raises(Refused, match="PARTITION:OFFSET"):
        admin.scheduled(TOPIC, message_id="seventeen")
    with pytest.raises(NotFound, match="no partition 9"):
        admin.scheduled(TOPIC, partition=9)
    with pytest.raises(NotFound):
        admin.cancel_scheduled("nowhere")
    with pytest.raises(Refused, match="a limit is"):
        admin.scheduled(TOPIC, limit=0)
