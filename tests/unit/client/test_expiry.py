"""Message TTL: which messages are expired, and what becomes of them."""

import pytest

from zhumq.client.expiry import TTL_HEADER, ExpiredCounts, Expiry, OnExpired
from zhumq.client.message import Answer, AnswerKind, Cursor, Delivery, Headers, Message
from zhumq.client.producer import Producer

NOW_MS = 1_700_000_000_000


class Answers:
    """An origin that keeps its answers."""

    topic = "orders"
    partition = 0
    cursor: Cursor | None = None

    def __init__(self) -> None:
        self.given: list[tuple[int, Answer]] = []

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        assert (first_offset, round_) == (last_offset, 0)
        self.given.append((first_offset, answer))

    def is_stale(self, round_: int, offset: int) -> bool:
        del round_, offset
        return False


def message(
    origin: Answers, offset: int, *ttls: bytes | None, age_ms: int = 100, timed: bool = True
) -> Message:
    made = Message()
    made.delivery = Delivery(origin, 0, 1)
    made.offset = offset
    made.timestamp_ms = NOW_MS - age_ms if timed else -1
    made.key = made.value = None
    headers: Headers = tuple((TTL_HEADER, each) for each in ttls)
    made.headers = (("other", b"1"), *headers)
    made.answered = False
    return made


def expiry(choice: OnExpired) -> Expiry:
    return Expiry(choice, lambda: NOW_MS)


def test_a_message_is_expired_once_its_ttl_is_over() -> None:
    origin = Answers()
    ttls = (b"99", b"100", b"101", b"0")
    messages = [message(origin, offset, ttl) for offset, ttl in enumerate(ttls)]
    messages.append(message(origin, 4))
    drops = expiry("drop")
    assert [each.offset for each in drops.unexpired(messages)] == [1, 2, 4]
    assert origin.given == [(0, Answer(AnswerKind.ACK)), (3, Answer(AnswerKind.ACK))]
    assert drops.counts == ExpiredCounts(dropped=2)


def test_an_expired_message_becomes_a_dead_letter_or_is_delivered_by_choice() -> None:
    origin = Answers()
    rejects = expiry("dead-letter")
    assert rejects.unexpired([message(origin, 7, b"10")]) == []
    ((offset, answer),) = origin.given
    assert (offset, answer.kind) == (7, AnswerKind.REJECT)
    assert answer.reason == "expired: its zhumq-ttl-ms of 10 was over 90 ms ago"
    assert rejects.counts == ExpiredCounts(dead_lettered=1)
    late = [message(origin, 8, b"10")]
    assert expiry("deliver").unexpired(late) == late


@pytest.mark.parametrize("ttl", [b"-1", b"", None, b"soon", b"1.5", b"1e3", b"9" * 20, b"\xff"])
def test_a_ttl_that_is_none_is_ignored_and_counted(ttl: bytes | None) -> None:
    origin = Answers()
    drops = expiry("drop")
    assert len(drops.unexpired([message(origin, 0, ttl)])) == 1
    assert origin.given == []
    assert drops.counts == ExpiredCounts(malformed=1)


def test_without_a_timestamp_a_message_has_no_age_and_the_last_ttl_counts() -> None:
    origin = Answers()
    drops = expiry("drop")
    kept = [message(origin, 0, b"0", timed=False), message(origin, 1, b"1", b"1000")]
    assert drops.unexpired(kept) == kept


def test_a_clock_that_is_behind_expires_nothing() -> None:
    origin = Answers()
    assert len(expiry("drop").unexpired([message(origin, 0, b"0", age_ms=-5_000)])) == 1


def test_a_choice_that_is_none_and_a_ttl_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="drop, dead-letter or deliver, not 'burn'"):
        Expiry("burn")  # type: ignore[arg-type]
    producer = Producer("127.0.0.1:1")
    with pytest.raises(ValueError, match="ttl_ms=-1 is below zero"):
        producer.send("orders", b"late", ttl_ms=-1)
