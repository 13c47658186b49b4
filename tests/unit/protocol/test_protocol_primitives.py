"""Varints at their edges, and what is refused."""

import uuid

import pytest

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.primitives import (
    decode_uvarint,
    encode_uvarint,
    skip_tagged_fields,
    uuid_from_bytes,
)

EDGES = sorted({edge + delta for bits in range(33) for edge in (1 << bits,) for delta in (-1, 0)})


@pytest.mark.parametrize("value", [edge for edge in EDGES if edge < 1 << 32])
def test_an_unsigned_varint_comes_back(value: int) -> None:
    encoded = encode_uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert decode_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("value", [-1, 1 << 32, 1 << 40])
def test_a_number_that_does_not_fit_an_unsigned_varint_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_uvarint(value)


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        decode_uvarint(b"\x80\x80\x80\x80\x80\x01", 0)


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    assert decode_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(MalformedFrame):
        decode_uvarint(b"\xff\xff\xff\xff\x1f", 0)


def test_a_varint_that_is_cut_off_says_so_in_the_way_callers_expect() -> None:
    with pytest.raises(IndexError):
        decode_uvarint(b"\x80", 0)


def test_tagged_fields_are_skipped_to_their_end() -> None:
    assert skip_tagged_fields(b"\x00", 0) == 1
    assert skip_tagged_fields(b"\x02\x00\x01a\x09\x00rest", 0) == 6


def test_a_tagged_field_past_the_end_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        skip_tagged_fields(b"\x01\x00\x05abcd", 0)


def test_a_uuid_seen_before_is_the_same_object() -> None:
    data = uuid.UUID(int=77).bytes
    assert uuid_from_bytes(data) is uuid_from_bytes(bytes(data))
    assert uuid_from_bytes(data) == uuid.UUID(int=77)
