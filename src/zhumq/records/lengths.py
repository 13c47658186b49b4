"""Counts the records of a records section, and skips them, by their length fields alone."""

from typing import Final

from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage

LENGTH_BYTES_MAX: Final = 5  # a varint of 32 bits
# Consecutive records often have the same length. The lengths of up to RUN of them are compared as
# one strided slice. If fewer than RUN_MIN match, the next SINGLES records are checked one by one.
RUN: Final = 1024
RUN_MIN: Final = 8
FEW: Final = 16  # up to this number `end_of` is cheaper than a run
SINGLES: Final = 256
# Slices of bytes are cheaper than slices of a memoryview. Up to these sizes of a record, or of a run,
# that saves more than the copy costs.
COPIED_RECORD_BYTES_MAX: Final = 400
COPIED_BYTES_MAX: Final = 64 * 1024
# By the first byte of a length: the distance from the record to the next one, for a length of one
# byte; negated and without 64 times the second byte, for a longer one; 0 for a negative length.
_STEPS: Final = tuple(
    0 if first & 1 else (first >> 1) + 1 if first < 0x80 else -(((first & 0x7F) >> 1) + 2)
    for first in range(256)
)


def check_lengths(payload: Buffer, count: int) -> None:
    """Raise CorruptMessage unless the payload is exactly this many consecutive records.

    Each record is | length varint | that many bytes |; those bytes are not checked.
    """
    try:
        position = end_of_many(payload, count)
    except IndexError:
        raise CorruptMessage(f"a batch ends before the last of its {count} records") from None
    if position != len(payload):
        raise CorruptMessage(f"the records of a batch end at byte {position} of {len(payload)}")


def end_of_many(payload: Buffer, count: int) -> int:
    """The position behind the first `count` records, in runs of records of one length.

    It may be behind the payload. Raises IndexError or CorruptMessage if there are fewer.
    """
    position = 0
    while count > 0:
        step, width = _step(payload, position)
        run = min(count, RUN)
        near = payload[position : position + step * (run - 1) + width]
        if step <= COPIED_RECORD_BYTES_MAX or len(near) <= COPIED_BYTES_MAX:
            near = bytes(near)
        # Exact: a record of this length ends where the next one of the same length begins.
        for place in range(width):
            lengths = bytes(near[place : place + step * (run - 1) + 1 : step])
            if lengths != lengths[:1] * run:
                run = len(lengths) - len(lengths.lstrip(lengths[:1]))
        position += step * run
        count -= run
        if run < RUN_MIN and count:
            if step <= COPIED_RECORD_BYTES_MAX:
                payload = bytes(payload)
            singles = min(count, SINGLES)
            position = end_of(payload, position, singles)
            count -= singles
    return position


def end_of(payload: Buffer, position: int, count: int) -> int:
    """The position behind `count` records, checked one by one: the cheapest way for up to FEW records.

    Raises IndexError or CorruptMessage if there are fewer.
    """
    steps = _STEPS
    while count:
        step = steps[payload[position]]
        if step > 0:
            position += step
        elif step and (byte := payload[position + 1]) < 0x80:
            position += (byte << 6) - step
        else:
            position += _step(payload, position)[0]
        count -= 1
    return position


def _step(payload: Buffer, position: int) -> tuple[int, int]:
    """The distance from the record at this position to the next one, and the bytes of its length field."""
    value = payload[position]
    if value & 1:
        raise CorruptMessage("a record says it has a negative length")
    if value < 0x80:
        return (value >> 1) + 1, 1
    value &= 0x7F
    for width in range(1, LENGTH_BYTES_MAX):
        byte = payload[position + width]
        value |= (byte & 0x7F) << (7 * width)
        if byte < 0x80:
            return (value >> 1) + 1 + width, width + 1
    raise CorruptMessage("the length of a record takes more than five bytes")
