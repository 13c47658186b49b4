"""Messages as serializers decode them: answered once, together with the bytes; bad ones hold up none before them."""

from typing import Any

import pytest

from zhumq import Json
from zhumq.client.codec import Codec
from zhumq.client.errors import DecodeFailed
from zhumq.client.message import Answer, AnswerKind, Cursor, Delivery, Message, Unread


class Answers:
    """An origin that keeps its answers, and whose messages are stale from an offset on."""

    topic = "orders"
    partition = 0
    cursor: Cursor | None = None

    def __init__(self) -> None:
        self.given: list[tuple[int, AnswerKind]] = []
        self.stale_from = 1_000

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        del last_offset, round_
        self.given.append((first_offset, answer.kind))

    def is_stale(self, round_: int, offset: int) -> bool:
        del round_
        return offset >= self.stale_from


def messages(origin: Answers, *values: bytes) -> Unread:
    found = []
    for offset, value in enumerate(values):
        made: Message = Message()
        made.delivery = Delivery(origin, 0, 1)
        made.offset = offset
        made.timestamp_ms = 0
        made.key, made.value, made.headers, made.answered = None, value, (), False
        found.append(made)
    return Unread(found)


def values(found: list[Message[Any]]) -> list[Any]:
    return [each.value for each in found]


def test_an_answer_counts_for_the_message_with_the_bytes_and_once() -> None:
    origin = Answers()
    unread = messages(origin, b"1")
    raw = next(unread)
    decoded = Codec(Json(int), None).accept(raw)
    assert decoded is not None
    assert (decoded.value, raw.value) == (1, b"1")
    decoded.reject("no")
    decoded.ack()
    raw.ack()
    assert (raw.answered, decoded.answered) == (True, True)
    assert origin.given == [(0, AnswerKind.REJECT)]


def test_what_is_before_a_bad_message_is_returned_then_it_raises_then_the_rest() -> None:
    origin = Answers()
    codec = Codec(Json(int), None)
    unread = messages(origin, b"0", b"1", b"?", b"3")
    assert values(codec.accept_all(unread)) == [0, 1]
    with pytest.raises(DecodeFailed, match="the value of orders-0@2: "):
        codec.accept_all(unread)
    assert values(codec.accept_all(unread)) == [3]
    assert values(codec.accept_all(unread)) == []
    assert origin.given == []


@pytest.mark.parametrize(
    ("choice", "kind"), [("skip", AnswerKind.ACK), ("dead-letter", AnswerKind.REJECT)]
)
def test_by_choice_a_bad_message_is_answered(choice: Any, kind: AnswerKind) -> None:
    origin = Answers()
    codec = Codec(Json(int), None, choice)
    assert values(codec.accept_all(messages(origin, b"0", b"?", b"2"))) == [0, 2]
    assert origin.given == [(1, kind)]


def test_messages_that_became_stale_are_left_out() -> None:
    origin = Answers()
    unread = messages(origin, b"0", b"1", b"?")
    origin.stale_from = 1
    assert values(Codec(Json(int), None).accept_all(unread)) == [0]
    assert origin.given == []
