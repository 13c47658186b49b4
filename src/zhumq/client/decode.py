"""Decodes record batches into messages. Optimized: most of a consumer's CPU time is spent here."""

from collections.abc import Sequence

from zhumq.client.message import (
    NO_HEADERS,
    Answer,
    AnswerKind,
    Cursor,
    Delivery,
    Headers,
    Message,
    Origin,
    Range,
)
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import HEADER_BYTES, RecordBatch, TimestampType, batches
from zhumq.records.codecs import decompress


def decode(origin: Origin, round_: int, ranges: Sequence[Range], records: bytes) -> list[Message]:
    """The messages of whole record batches whose offsets lie in the ranges."""
    found: list[Message] = []
    for first, last, count in ranges:
        delivery = Delivery(origin, round_, count)
        of_range: list[Message] = []
        for batch in batches(records):
            header = batch.header
            if header.base_offset > last:
                break
            if header.last_offset >= first and not header.is_control:
                of_range += _decode_batch(batch, records, delivery, first, last)
        if len(of_range) != last - first + 1:
            _cover_gaps(of_range, delivery, first, last)
        found += of_range
    return found


def _cover_gaps(found: list[Message], delivery: Delivery, first: int, last: int) -> None:
    """Cover offsets that compaction removed: by the answer of the next message, or by an ack from here."""
    if not found:
        delivery.origin.answer(first, last, Answer(AnswerKind.ACK), delivery.round)
        return
    gaps = {}
    begin = first
    for message in found:
        gaps[message.offset] = (begin, message.offset)
        begin = message.offset + 1
    gaps[found[-1].offset] = (gaps[found[-1].offset][0], last)
    delivery.gaps = gaps


def _decode_batch(
    batch: RecordBatch, records: bytes, delivery: Delivery, first: int, last: int
) -> list[Message]:
    """The messages of a batch from one offset to another."""
    header = batch.header
    base_offset, count = header.base_offset, header.records_count
    if not count:
        return []
    if count != header.last_offset_delta + 1:
        # Compacted: only decoding shows which offsets are left.
        data = bytes(decompress(header.compression, batch.data[HEADER_BYTES:]))
        found, _ = _decode_records(batch, data, delivery, 0, count)
        return [message for message in found if first <= message.offset <= last]
    begin, end = max(first - base_offset, 0), min(last - base_offset + 1, count)
    cursor = delivery.origin.cursor
    if (
        cursor is not None
        and cursor.records is records
        and cursor.base_offset == base_offset
        and cursor.record_index <= begin
    ):
        data, index, position = cursor.data, cursor.record_index, cursor.position
    else:
        data = bytes(decompress(header.compression, batch.data[HEADER_BYTES:]))
        index = position = 0
    position = _skip(data, position, begin - index)
    found, position = _decode_records(batch, data, delivery, position, end - begin)
    if end < count:
        # The rest arrives in another frame that refers to the same bytes.
        delivery.origin.cursor = Cursor(records, base_offset, data, end, position)
    return found


def _skip(data: bytes, position: int, count: int) -> int:
    try:
        for _ in range(count):
            length, position = _varint(data, position)
            position += length
    except IndexError:
        raise CorruptMessage("a batch ends in a record") from None
    return position


def _decode_records(
    batch: RecordBatch, data: bytes, delivery: Delivery, position: int, count: int
) -> tuple[list[Message], int]:
    """Decode `count` records from a position on. Returns them and the position of the next one."""
    header = batch.header
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    found: list[Message] = []
    append = found.append
    new = Message.__new__
    try:
        for _ in range(count):
            # | length | attributes i8 | timestamp delta | offset delta | key | value | headers |
            # Most varints have one or two bytes. They are decoded inline: function calls would cost the most.
            byte = data[position]
            if byte < 0x80:
                position += 1
                length = byte >> 1
            elif (high := data[position + 1]) < 0x80:
                position += 2
                length = (byte & 0x7F | high << 7) >> 1
            else:
                length, position = _varint(data, position)
            end = position + length
            byte = data[position + 1]
            if byte < 0x80:
                position += 2
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            else:
                timestamp_delta, position = _varint(data, position + 1)
            byte = data[position]
            if byte < 0x80:
                position += 1
                offset_delta = byte >> 1
            elif (high := data[position + 1]) < 0x80:
                position += 2
                offset_delta = (byte & 0x7F | high << 7) >> 1
            else:
                offset_delta, position = _varint(data, position)
            key: bytes | None
            if data[position] == 1:  # the varint of -1: no key
                position += 1
                key = None
            else:
                key, position = _field(data, position)
            byte = data[position]
            value: bytes | None
            if byte & 0x81 == 0x80 and (high := data[position + 1]) < 0x80:
                position += 2
                value_end = position + ((byte & 0x7F | high << 7) >> 1)
                value = data[position:value_end]
                position = value_end
            else:
                value, position = _field(data, position)
            message = new(Message)
            message.delivery = delivery
            message.offset = base_offset + offset_delta
            message.timestamp_ms = base_timestamp + timestamp_delta
            message.key = key
            message.value = value
            message.headers = NO_HEADERS if data[position] == 0 else _headers(data, position)
            message.answered = False
            append(message)
            position = end
    except IndexError:
        raise CorruptMessage(f"a batch at offset {base_offset} ends in a record") from None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        for message in found:
            message.timestamp_ms = header.max_timestamp
    return found, position


def _headers(data: bytes, position: int) -> Headers:
    count, position = _varint(data, position)
    found = []
    for _ in range(count):
        name, position = _field(data, position)
        value, position = _field(data, position)
        found.append(((name or b"").decode(), value))
    return tuple(found)


def _field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length < 0x80:
        position += 1
        length = (length >> 1) ^ -(length & 1)
    else:
        length, position = _varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    return data[position:end], end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
