"""ShareFetch and ShareAcknowledge request by request: sessions, locks, responses, refusals."""

import threading
import uuid
from collections.abc import Iterator

import pytest
from share_member import FINAL_EPOCH, ShareMember, produce, topic_id_of

from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.share import AcknowledgementBatch
from zhumq.share.acknowledgement import AckKind
from zhumq.testing.broker import RunningBroker, broker

SETTINGS = {
    "group.share.auto.offset.reset": "earliest",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.record.lock.duration.ms": "1000",
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as each:
        yield each


@pytest.fixture
def topic(running: RunningBroker) -> uuid.UUID:
    return topic_id_of(running.bootstrap, f"t-{uuid.uuid4()}")


def numbers(count: int) -> list[bytes]:
    return [b"%d" % each for each in range(count)]


def test_a_session_is_opened_used_and_ended(running: RunningBroker, topic: uuid.UUID) -> None:
    produce(running.bootstrap, topic, numbers(10))
    with ShareMember(running.bootstrap, "g", topic) as member:
        assert [each.offset for each in member.take()] == list(range(10))
        assert member.say(AckKind.ACCEPT, 0, 0, 9) == ErrorCode.NONE
        assert member.take(max_wait_ms=0) == []
        member.close()
        again = member.fetch_raw(epoch=3)
        assert again.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_acknowledgements_travel_with_the_next_fetch(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    produce(running.bootstrap, topic, numbers(4))
    with ShareMember(running.bootstrap, "g", topic) as member:
        member.take()
        mixed = AcknowledgementBatch(first_offset=0, last_offset=3, acknowledge_types=[1, 2, 2, 1])
        again = member.take(acknowledgements=[mixed])
        assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (2, 2)]
        member.close()


def test_requests_that_are_not_the_next_of_their_session_are_refused(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    produce(running.bootstrap, topic, numbers(1))
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    with ShareMember(running.bootstrap, "g", topic) as member:
        assert member.fetch_raw(epoch=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (
            member.acknowledge_raw(0, [batch], epoch=FINAL_EPOCH).error_code
            == ErrorCode.SHARE_SESSION_NOT_FOUND
        )
        opening = member.fetch_raw(epoch=0, acknowledgements=[batch])
        assert opening.error_code == ErrorCode.INVALID_REQUEST
        member.take()
        assert member.fetch_raw(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.acknowledge_raw(0, [batch], epoch=0).error_code == ErrorCode.INVALID_REQUEST
        member.member_id = ""
        assert member.fetch_raw(epoch=0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([AcknowledgementBatch(first_offset=3, last_offset=2, acknowledge_types=[1])], 42),
        ([AcknowledgementBatch(first_offset=-4, last_offset=-2, acknowledge_types=[1])], 42),
        ([AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[1, 1])], 42),
        ([AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[])], 42),
        ([AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[9])], 42),
        (
            [
                AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1]),
                AcknowledgementBatch(first_offset=2, last_offset=3, acknowledge_types=[1]),
            ],
            42,
        ),
        ([AcknowledgementBatch(first_offset=4, last_offset=9, acknowledge_types=[1])], 121),
        ([AcknowledgementBatch(first_offset=900, last_offset=900, acknowledge_types=[1])], 121),
    ],
)
def test_an_acknowledgement_that_makes_no_sense_is_refused_and_nothing_is_lost(
    running: RunningBroker, topic: uuid.UUID, batches: list[AcknowledgementBatch], code: int
) -> None:
    produce(running.bootstrap, topic, numbers(5))
    with ShareMember(running.bootstrap, "g", topic) as member:
        member.take()
        answer = member.acknowledge_raw(0, batches)
        assert answer.responses[0].partitions[0].error_code == code
        assert member.say(AckKind.ACCEPT, 0, 0, 4) == ErrorCode.NONE
        member.close()


def test_an_unknown_topic_or_partition_is_an_error_of_that_one(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    with ShareMember(running.bootstrap, "g", topic, (0, 77)) as member:
        response = member.fetch_raw()
        (answer,) = response.responses[0].partitions
        assert (answer.partition_index, answer.error_code) == (
            77,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    with ShareMember(running.bootstrap, "g", uuid.UUID(int=1)) as member:
        response = member.fetch_raw()
        (answer,) = response.responses[0].partitions
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_two_members_never_hold_the_same_record(running: RunningBroker, topic: uuid.UUID) -> None:
    produce(running.bootstrap, topic, numbers(30))
    with (
        ShareMember(running.bootstrap, "g", topic) as ann,
        ShareMember(running.bootstrap, "g", topic) as bob,
    ):
        of_ann = {each.offset for each in ann.take(max_records=10, strict=True)}
        of_bob = {each.offset for each in bob.take(max_records=100, strict=True)}
        assert of_ann == set(range(10))
        assert of_bob == set(range(10, 30))
        assert bob.say(AckKind.ACCEPT, 0, 5) == ErrorCode.INVALID_RECORD_STATE, (
            "ann has acquired it"
        )
        ann.close()
        again = bob.take(max_records=100)
        assert {each.offset for each in again} == of_ann, "a session that ends releases its records"
        assert {each.delivery_count for each in again} == {1}
        bob.close()


def test_an_expired_lock_makes_the_record_available_to_another_member(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    produce(running.bootstrap, topic, numbers(1))
    with (
        ShareMember(running.bootstrap, "g", topic) as ann,
        ShareMember(running.bootstrap, "g", topic) as bob,
    ):
        assert len(ann.take()) == 1
        (again,) = bob.take(max_wait_ms=20_000)
        assert again.delivery_count == 2
        assert ann.say(AckKind.ACCEPT, 0, 0) == ErrorCode.INVALID_RECORD_STATE
        assert bob.say(AckKind.ACCEPT, 0, 0) == ErrorCode.NONE
        ann.close()
        bob.close()


def test_a_lost_connection_releases_what_its_member_had_acquired(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    produce(running.bootstrap, topic, numbers(3))
    with ShareMember(running.bootstrap, "g", topic) as bob:
        bob.take(max_records=0, max_wait_ms=0)
        with ShareMember(running.bootstrap, "g", topic) as ann:
            assert len(ann.take()) == 3
        again = bob.take(max_wait_ms=20_000)
        assert [each.delivery_count for each in again] == [2, 2, 2]
        bob.close()


def test_a_fetch_waits_for_records_and_is_woken_by_them(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    with ShareMember(running.bootstrap, "g", topic) as member:
        member.take(max_wait_ms=0)
        later = threading.Timer(0.2, produce, (running.bootstrap, topic, numbers(2)))
        later.start()
        assert len(member.take(max_wait_ms=20_000)) == 2
        later.join()
        member.close()


def test_there_are_only_so_many_sessions() -> None:
    with broker(settings=SETTINGS | {"group.share.max.share.sessions": "3"}) as small:
        topic = topic_id_of(small.bootstrap, "t")
        members = [ShareMember(small.bootstrap, "g", topic) for _ in range(4)]
        codes = [member.fetch_raw(max_wait_ms=0).error_code for member in members]
        assert codes == [0, 0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        members[0].close()
        assert members[3].fetch_raw(max_wait_ms=0).error_code == 0
        for member in members:
            member.__exit__(None, None, None)


def test_a_member_with_a_new_session_gets_its_acquired_records_again(
    running: RunningBroker, topic: uuid.UUID
) -> None:
    produce(running.bootstrap, topic, numbers(2))
    with ShareMember(running.bootstrap, "g", topic) as member:
        assert len(member.take()) == 2
        member.epoch = 0
        assert [each.delivery_count for each in member.take()] == [2, 2]
        member.close()


def test_groups_are_independent(running: RunningBroker, topic: uuid.UUID) -> None:
    produce(running.bootstrap, topic, numbers(5))
    for group in ("a", "b"):
        with ShareMember(running.bootstrap, group, topic) as member:
            assert len(member.take()) == 5
            assert member.say(AckKind.ACCEPT, 0, 0, 4) == ErrorCode.NONE
            member.close()
