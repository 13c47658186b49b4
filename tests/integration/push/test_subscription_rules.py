"""The rules of subscriptions: every case runs through pull and through push."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from push_support import AT_ONCE, new_topic, numbered, run, send, until
from subscription_table import Seen, read, reading, sending

from zhumq import Admin, Message, Producer
from zhumq.client.errors import RequestFailed, SubscriptionRefused
from zhumq.testing.broker import RunningBroker

HOW = ["pull", "push"]
MODES = ["ptp", "ptp-shared", "psb"]
COUNT = 10
FIRST_TIME_MS = 1_700_000_000_000

pytestmark = pytest.mark.parametrize("how", HOW)
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def topic(running: RunningBroker) -> str:
    """A topic with ten old messages, a second apart."""
    name = new_topic(running.bootstrap, settings={"retention.ms": "-1"})
    with Producer(running.bootstrap, settings=AT_ONCE) as producer:
        for number in range(COUNT):
            time_ms = FIRST_TIME_MS + 1_000 * number
            producer.send(name, b"%d" % number, partition=0, timestamp_ms=time_ms)
    return name


def dead_letters(running: RunningBroker, topic: str, count: int = 1) -> list[Any]:
    """The dead letters of a topic, once there are at least `count`."""

    def found() -> list[Any]:
        with Admin(running.bootstrap) as admin:
            if f"{topic}.dlq" not in admin.topics():
                return []
            return list(admin.dead_letters(topic))

    run(until(lambda: len(found()) >= count))
    return found()


@every_mode
@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"start": "earliest"}, 0),
        ({"start": 7}, 7),
        ({"start_time_ms": FIRST_TIME_MS + 3_500}, 4),
        ({}, 0),
    ],
    ids=["earliest", "offset", "time", "default"],
)
def test_a_new_group_begins_at_the_given_start(
    running: RunningBroker, topic: str, how: str, mode: str, start: dict[str, Any], first: int
) -> None:
    seen = read(how, running.bootstrap, topic, mode=mode, group="g", count=COUNT - first, **start)
    assert sorted(seen) == [Seen(0, offset, 1) for offset in range(first, COUNT)]


@every_mode
def test_a_new_group_that_begins_at_the_end_gets_only_what_comes(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    with sending(running.bootstrap, topic):
        seen = read(how, running.bootstrap, topic, mode=mode, group="g", count=2, start="latest")
    assert min(seen).offset >= COUNT


@every_mode
def test_a_group_continues_at_its_position(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    first = read(how, running.bootstrap, topic, mode=mode, group="g", count=4)
    second = read(how, running.bootstrap, topic, mode=mode, group="g", count=6)
    assert sorted(first + second) == [Seen(0, offset, 1) for offset in range(COUNT)]


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_start_does_not_move_a_point_to_point_group_that_has_a_position(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    read(how, running.bootstrap, topic, mode=mode, group="g", count=4)
    (seen,) = read(how, running.bootstrap, topic, mode=mode, group="g", count=1, start=8)
    assert seen.offset == 4


@every_mode
def test_pull_and_push_follow_each_other_in_a_group(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    other = HOW[HOW.index(how) - 1]
    first = read(how, running.bootstrap, topic, mode=mode, group="g", count=4)
    second = read(other, running.bootstrap, topic, mode=mode, group="g", count=6)
    assert sorted(first + second) == [Seen(0, offset, 1) for offset in range(COUNT)]


@every_mode
def test_a_nacked_message_comes_again_and_is_counted(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    def answers(message: Message) -> str:
        return "nack" if message.offset == 3 and message.delivery_count < 4 else "ack"

    seen = read(
        how, running.bootstrap, topic, mode=mode, group="g", count=COUNT + 3, answers=answers
    )
    assert [each.delivery_count for each in seen if each.offset == 3] == [1, 2, 3, 4]
    # A nack releases the messages after it without counting: those are counted once.
    assert {each for each in seen if each.offset != 3} == {
        Seen(0, offset, 1) for offset in range(COUNT) if offset != 3
    }
    if mode != "ptp-shared":
        assert [each.offset for each in seen] == [0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7, 8, 9]


@every_mode
def test_a_message_nacked_to_the_limit_is_a_dead_letter(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    def answers(message: Message) -> str:
        return "nack" if message.offset == 3 else "ack"

    seen = read(
        how, running.bootstrap, topic, mode=mode, group="g", count=COUNT + 15, answers=answers
    )
    assert [each.delivery_count for each in seen if each.offset == 3] == list(range(1, 17))
    (dead_letter,) = dead_letters(running, topic)
    story = dead_letter.story
    assert (dead_letter.value, story.group, story.offset, story.deliveries) == (b"3", "g", 3, 16)


@every_mode
def test_a_rejected_message_is_a_dead_letter_at_once(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    def answers(message: Message) -> str:
        return "reject" if message.offset == 3 else "ack"

    read(how, running.bootstrap, topic, mode=mode, group="g", count=COUNT, answers=answers)
    (dead_letter,) = dead_letters(running, topic)
    assert (dead_letter.value, dead_letter.story.deliveries) == (b"3", 1)


@every_mode
def test_a_released_message_comes_again_uncounted(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    released: list[int] = []

    def answers(message: Message) -> str:
        if message.offset == 3 and not released:
            released.append(3)
            return "release"
        return "ack"

    seen = read(
        how, running.bootstrap, topic, mode=mode, group="g", count=COUNT + 1, answers=answers
    )
    assert [each.delivery_count for each in seen if each.offset == 3] == [1, 1]


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_second_point_to_point_group_is_refused_by_the_name_of_the_first_one(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    read(how, running.bootstrap, topic, mode=mode, group="first", count=1)
    with pytest.raises(SubscriptionRefused, match="'first'") as refused:
        read(how, running.bootstrap, topic, mode=mode, group="second", count=1)
    assert refused.value.code == "GROUP_CONFLICT"


@pytest.mark.parametrize("first", HOW)
def test_a_psb_group_refuses_its_second_consumer(
    running: RunningBroker, topic: str, how: str, first: str
) -> None:
    with (
        reading(first, running.bootstrap, topic, mode="psb", group="g"),
        pytest.raises(SubscriptionRefused, match="already has a consumer") as refused,
    ):
        read(how, running.bootstrap, topic, mode="psb", group="g", count=1)
    assert refused.value.code == "GROUP_CONFLICT"
    assert len(read(how, running.bootstrap, topic, mode="psb", group="g", count=COUNT)) == COUNT


def test_two_psb_groups_and_a_nameless_consumer_get_everything(
    running: RunningBroker, topic: str, how: str
) -> None:
    for group in ("g", "h", None, None):
        seen = read(how, running.bootstrap, topic, mode="psb", group=group, count=COUNT)
        assert [each.offset for each in seen] == list(range(COUNT))


@every_mode
@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        ({"start": 99}, "OFFSET_OUT_OF_RANGE"),
        ({"start": -7}, "OFFSET_OUT_OF_RANGE"),
        ({"topics": "no-such-topic"}, "UNKNOWN_TOPIC"),
        ({"credits": 0}, "CREDIT_INVALID"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_code(
    running: RunningBroker, topic: str, how: str, mode: str, subscription: dict[str, Any], code: str
) -> None:
    options = {"topics": topic} | subscription
    with pytest.raises(SubscriptionRefused) as refused:
        read(how, running.bootstrap, mode=mode, group="g", count=1, **options)
    assert refused.value.code == code


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_members_of_a_point_to_point_group_share_the_messages(
    running: RunningBroker, how: str, mode: str
) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, numbered(20), partitions=2)
    options = {"mode": mode, "group": "g", "credits": 2}
    with reading(how, running.bootstrap, topic, **options):
        seen = read(how, running.bootstrap, topic, count=8, **options)
    rest = read(how, running.bootstrap, topic, count=12, **options)
    assert {each[:2] for each in seen + rest} == {(p, o) for p in range(2) for o in range(10)}


# The topic's one point-to-point group, and the consumers of its partitions


@pytest.mark.parametrize("mode", MODES)
def test_a_new_group_reads_chosen_partitions_from_an_offset(
    running: RunningBroker, how: str, mode: str
) -> None:
    topic = new_topic(running.bootstrap, partitions=3)
    send(running.bootstrap, topic, numbered(30), partitions=3)
    options = {"mode": mode, "group": "chooser"}
    seen = read(how, running.bootstrap, {topic: [2]}, count=2, start=6, **options)
    assert sorted(seen) == [Seen(2, 6, 1), Seen(2, 7, 1)]
    more = read(how, running.bootstrap, {topic: [2, 0]}, count=12, **options)
    assert sorted(more) == [
        *(Seen(0, offset, 1) for offset in range(10)),
        Seen(2, 8, 1),
        Seen(2, 9, 1),
    ]


def test_a_chosen_partition_has_one_consumer_of_its_group(running: RunningBroker, how: str) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, numbered(20), partitions=2)
    options = {"mode": "ptp", "group": "choosers"}
    with reading(how, running.bootstrap, {topic: [1]}, **options):
        with pytest.raises(SubscriptionRefused, match="has its consumer in group 'choosers'"):
            read(how, running.bootstrap, {topic: [1]}, count=1, **options)
        seen = read(how, running.bootstrap, {topic: [0]}, count=10, **options)
        assert {each.partition for each in seen} == {0}
    assert len(read(how, running.bootstrap, {topic: [1]}, count=10, **options)) == 10


def test_a_member_waits_for_a_partition_that_another_consumer_has_chosen(
    running: RunningBroker, how: str
) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, numbered(20), partitions=2)
    options = {"mode": "ptp", "group": "both"}
    with reading(how, running.bootstrap, {topic: [1]}, **options):
        seen = read(how, running.bootstrap, topic, count=10, **options)
        assert {each.partition for each in seen} == {0}
    rest = read(how, running.bootstrap, topic, count=10, **options)
    assert {each.partition for each in rest} == {1}


def test_a_member_keeps_its_partition_from_one_that_would_choose_it(
    running: RunningBroker, topic: str, how: str
) -> None:
    options = {"mode": "ptp", "group": "both"}
    with (
        reading(how, running.bootstrap, topic, **options),
        pytest.raises(SubscriptionRefused, match="has its consumer"),
    ):
        read(how, running.bootstrap, {topic: [0]}, count=1, **options)


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_consumer_without_a_group_name_joins_the_group_of_the_topic(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    read(how, running.bootstrap, topic, mode=mode, group="there", count=4)
    seen = read(how, running.bootstrap, topic, mode=mode, count=6)
    assert sorted(seen) == [Seen(0, offset, 1) for offset in range(4, COUNT)]


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_consumer_without_a_group_name_makes_one_that_others_without_a_name_join(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    first = read(how, running.bootstrap, topic, mode=mode, count=4)
    second = read(how, running.bootstrap, topic, mode=mode, count=6)
    assert sorted(first + second) == [Seen(0, offset, 1) for offset in range(COUNT)]
    with pytest.raises(SubscriptionRefused, match=f"'zhumq.ptp.{topic}'"):
        read(how, running.bootstrap, topic, mode=mode, group="another", count=1)


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_claim_ends_with_its_group(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    read(how, running.bootstrap, topic, mode=mode, group="first", count=4)
    with pytest.raises(SubscriptionRefused):
        read(how, running.bootstrap, topic, mode=mode, group="second", count=1)
    delete_group(running, "first")
    seen = read(how, running.bootstrap, topic, mode=mode, group="second", count=COUNT)
    assert sorted(seen) == [Seen(0, offset, 1) for offset in range(COUNT)]


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_a_claim_ends_with_its_topic(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    read(how, running.bootstrap, topic, mode=mode, group="first", count=1)
    with Admin(running.bootstrap) as admin:
        admin.delete_topic(topic)
        run(until(lambda: topic not in admin.topics()))
        admin.create_topic(topic, partitions=1)
    send(running.bootstrap, topic, numbered(2))
    seen = read(how, running.bootstrap, topic, mode=mode, group="second", count=2)
    assert sorted(seen) == [Seen(0, 0, 1), Seen(0, 1, 1)]


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_an_operator_releases_a_claim_whose_group_has_no_consumers(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    with Admin(running.bootstrap) as admin:
        with reading(how, running.bootstrap, topic, mode=mode, group="first"):
            assert topic in admin.subscription_groups()["first"].claims
            with pytest.raises(RequestFailed, match="'first' has 1 consumers"):
                admin.release_topic(topic)
        assert admin.release_topic(topic) == "first"
        with pytest.raises(RequestFailed, match="by no group"):
            admin.release_topic(topic)
    assert len(read(how, running.bootstrap, topic, mode=mode, group="second", count=1)) == 1


def delete_group(running: RunningBroker, group: str) -> None:
    """Delete a group with a Kafka client, once its last consumer has left."""
    client = AdminClient({"bootstrap.servers": running.bootstrap})

    def deleted() -> bool:
        try:
            client.delete_consumer_groups([group])[group].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False
        return True

    run(until(deleted))
