"""One set of rules: every case of this table is run through pull and through push."""

from typing import Any

import pytest
from push_support import new_topic, numbered, run, send, until
from subscription_table import Seen, read, reading, sending

from zhumq import Admin, Message, Producer
from zhumq.client.errors import SubscriptionRefused
from zhumq.testing.broker import RunningBroker

HOW = ["pull", "push"]
MODES = ["ptp", "ptp-shared", "psb"]
COUNT = 10
FIRST_TIME_MS = 1_700_000_000_000

pytestmark = pytest.mark.parametrize("how", HOW)
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def topic(running: RunningBroker) -> str:
    """Ten messages, a second apart, of long ago."""
    name = new_topic(running.bootstrap, settings={"retention.ms": "-1"})
    with Producer(running.bootstrap) as producer:
        for number in range(COUNT):
            time_ms = FIRST_TIME_MS + 1_000 * number
            producer.send(name, b"%d" % number, partition=0, timestamp_ms=time_ms)
    return name


def letters(running: RunningBroker, topic: str, count: int = 1) -> list[Any]:
    """The dead letters of a topic, once there are so many."""

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
    ids=["earliest", "offset", "time", "unsaid"],
)
def test_a_new_group_begins_where_it_is_told(
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
def test_a_group_goes_on_where_it_was(
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
    # A failed message takes back what follows it, uncounted: the others are counted once.
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
    (letter,) = letters(running, topic)
    story = letter.story
    assert (letter.value, story.group, story.offset, story.deliveries) == (b"3", "g", 3, 16)


@every_mode
def test_a_rejected_message_is_a_dead_letter_at_once(
    running: RunningBroker, topic: str, how: str, mode: str
) -> None:
    def answers(message: Message) -> str:
        return "reject" if message.offset == 3 else "ack"

    read(how, running.bootstrap, topic, mode=mode, group="g", count=COUNT, answers=answers)
    (letter,) = letters(running, topic)
    assert (letter.value, letter.story.deliveries) == (b"3", 1)


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
        pytest.raises(SubscriptionRefused, match="has its consumer already") as refused,
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


def test_psb_reads_chosen_partitions(running: RunningBroker, how: str) -> None:
    topic = new_topic(running.bootstrap, partitions=3)
    send(running.bootstrap, topic, numbered(30), partitions=3)
    seen = read(how, running.bootstrap, {topic: [2]}, mode="psb", group="g", count=4, start=6)
    assert seen == [Seen(2, offset, 1) for offset in range(6, 10)]


@every_mode
@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"start": 99}, "OFFSET_OUT_OF_RANGE"),
        ({"start": -7}, "OFFSET_OUT_OF_RANGE"),
        ({"topics": "no-such-topic"}, "UNKNOWN_TOPIC"),
        ({"credits": 0}, "CREDIT_INVALID"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    running: RunningBroker, topic: str, how: str, mode: str, wish: dict[str, Any], code: str
) -> None:
    options = {"topics": topic} | wish
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
