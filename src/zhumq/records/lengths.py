"""Whether a records section holds as many records as its batch says, by their lengths alone."""

from typing import Final

from zhumq.model.errors import CorruptMessage

LENGTH_BYTES_MAX: Final = 5  # a varint of 32 bits
# Records of one length often follow one another. The lengths of up to RUN of them are compared as
# one strided slice; where that passes fewer than RUN_MIN, the next SINGLES are gone through singly.
RUN: Final = 1024
RUN_MIN: Final = 8
FEW: Final = 16  # up to here `end_of` is cheaper than a run
SINGLES: Final = 256
# Slices of bytes are cheaper than those of a view, by more than the copy costs up to this size of a
# record, or of a few of them.
COPIED_RECORD_BYTES_MAX: Final = 400
COPIED_BYTES_MAX: Final = 64 * 1024
# By the first byte of a length: from a record to the next one if that is all of it; negated and
# short of 64 times the second byte if there is one; 0 for a length that is negative.
_STEPS: Final = tuple(
    0 if first & 1 else (first >> 1) + 1 if first < 0x80 else -(((first & 0x7F) >> 1) + 2)
    for first in range(256)
)


def check_lengths(payload: bytes | memoryview, count: int) -> None:
    """CorruptMessage unless the payload is exactly this many records, one behind the other.

    | length varint | that many bytes | for each record; what is inside of them is not looked at.
    """
    position = 0
    try:
        while count > 0:
            step, width = _step(payload, position)
            run = min(count, RUN)
            near = payload[position : position + step * (run - 1) + width]
            if step <= COPIED_RECORD_BYTES_MAX or len(near) <= COPIED_BYTES_MAX:
                near = bytes(near)
            # Exact: a record of this length ends where the next one begins, whose length is the same.
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
    except IndexError:
        raise CorruptMessage(f"a batch ends {count} records too early") from None
    if position != len(payload):
        raise CorruptMessage(f"the records of a batch end at byte {position} of {len(payload)}")


def end_of(payload: bytes | memoryview, position: int, count: int) -> int:
    """Where so many records end, gone through singly: the cheapest way for at most FEW of them.

    Raises IndexError or CorruptMessage where they do not.
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


def _step(payload: bytes | memoryview, position: int) -> tuple[int, int]:
    """From the record at this position to the next one, and how many bytes its length takes."""
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
