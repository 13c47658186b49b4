"""Decoding of record batches into messages: against the reference decoder, ranges, gaps, and damage."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.client.decode import decode
from zhumq.client.message import Answer, AnswerKind, Cursor, Message, Range
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import Record, RecordHeader, TimestampType, batches
from zhumq.records.builder import build_batch, rebuild_batch
from zhumq.records.codecs import Compression


class Answers:
    """An origin that records the answers."""

    topic = "t"
    partition = 0

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.given: list[tuple[int, int, AnswerKind]] = []

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        del round_
        self.given.append((first_offset, last_offset, answer.kind))

    def is_stale(self, round_: int, offset: int) -> bool:
        del round_, offset
        return False


def as_tuples(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    return [(m.offset, m.timestamp_ms, m.key, m.value, m.headers) for m in messages]


fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), fields), max_size=3)
records = st.lists(
    st.tuples(st.integers(0, 2**40), fields, fields, headers), min_size=1, max_size=30
)


@given(records, st.sampled_from(list(Compression)), st.integers(0, 2**33))
def test_every_record_of_a_batch_is_decoded(
    contents: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    compression: Compression,
    base_offset: int,
) -> None:
    given_records = [
        Record(
            timestamp=timestamp,
            key=key,
            value=value,
            headers=tuple(RecordHeader(*pair) for pair in pairs),
        )
        for timestamp, key, value, pairs in contents
    ]
    data = build_batch(given_records, base_offset=base_offset, compression=compression)
    last = base_offset + len(given_records) - 1
    found = decode(Answers(), 0, [Range(base_offset, last, 1)], data)
    assert as_tuples(found) == [
        (
            base_offset + index,
            record.timestamp,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
        )
        for index, record in enumerate(given_records)
    ]


def many(count: int, base_offset: int = 0) -> bytes:
    return build_batch(
        [Record(timestamp=5, value=b"%d" % n) for n in range(count)], base_offset=base_offset
    )


def test_only_the_ranges_are_delivered_each_with_its_count() -> None:
    data = many(10) + many(10, base_offset=10)
    found = decode(Answers(), 0, [Range(2, 3, 1), Range(8, 11, 4)], data)
    assert [(m.offset, m.delivery_count) for m in found] == [
        (2, 1), (3, 1), (8, 4), (9, 4), (10, 4), (11, 4),
    ]  # fmt: skip


def test_a_batch_that_arrives_in_parts_is_decoded_from_where_decoding_stopped() -> None:
    origin, data = Answers(), many(1_000)
    offsets = []
    for first in range(0, 1_000, 10):
        offsets += [m.offset for m in decode(origin, 0, [Range(first, first + 9, 1)], data)]
        if first < 990:
            assert origin.cursor is not None
            assert origin.cursor.record_index == first + 10
    assert offsets == list(range(1_000))
    # Back to an earlier part, as after a nack.
    assert [m.offset for m in decode(origin, 0, [Range(3, 4, 2)], data)] == [3, 4]


def test_an_answer_covers_the_gaps_that_compaction_left() -> None:
    (batch,) = batches(many(10))
    kept = [record for record in batch.records() if record.offset in (2, 3, 7)]
    data = rebuild_batch(batch.header, kept, delete_horizon_ms=None)
    origin = Answers()
    found = decode(origin, 0, [Range(0, 9, 1)], data)
    for message in found:
        message.ack()
    assert [m.offset for m in found] == [2, 3, 7]
    assert origin.given == [(0, 2, AnswerKind.ACK), (3, 3, AnswerKind.ACK), (4, 9, AnswerKind.ACK)]
    # No message of the range is left: the decoder acks it.
    origin.given.clear()
    assert decode(origin, 0, [Range(4, 6, 1)], data) == []
    assert origin.given == [(4, 6, AnswerKind.ACK)]


def test_a_control_batch_holds_no_messages() -> None:
    data = build_batch([Record(timestamp=1, key=b"\0\0\0\1", value=b"")], is_control=True)
    origin = Answers()
    assert decode(origin, 0, [Range(0, 0, 1)], data) == []
    assert origin.given == [(0, 0, AnswerKind.ACK)]


def test_append_time_is_the_batchs() -> None:
    records_ = [Record(timestamp=n, value=b"x") for n in (5, 9, 7)]
    data = build_batch(records_, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [m.timestamp_ms for m in decode(Answers(), 0, [Range(0, 2, 1)], data)] == [9, 9, 9]


def test_a_batch_that_ends_inside_a_record_raises_corrupt_message() -> None:
    data = bytearray(many(3))
    data[61] = 0xFE  # the length of the first record
    with pytest.raises(CorruptMessage):
        decode(Answers(), 0, [Range(0, 2, 1)], bytes(data))


def test_a_message_is_answered_once() -> None:
    origin = Answers()
    (message,) = decode(origin, 0, [Range(0, 0, 1)], many(1))
    message.extend()
    message.nack("no")
    message.ack()
    message.extend()
    assert [kind for _, _, kind in origin.given] == [AnswerKind.EXTEND, AnswerKind.NACK]
