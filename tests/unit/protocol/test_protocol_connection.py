"""Frames from received pieces: whole, several, split anywhere, and with impossible sizes."""

import random
import struct

import pytest

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.connection import ConnectionCodec

FRAME_BYTES_MAX = 1000


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def test_one_whole_frame_comes_out_at_once() -> None:
    assert ConnectionCodec(FRAME_BYTES_MAX).receive_bytes(framed(b"abc")) == [b"abc"]


def test_several_frames_come_out_in_order() -> None:
    frames = [b"a", b"bb", b"c" * 500]
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    assert codec.receive_bytes(framed(*frames)) == frames
    assert codec.held_bytes == 0


def test_frames_split_at_every_byte_come_out_whole() -> None:
    frames = [b"first", b"s", b"third frame"]
    stream = framed(*frames)
    for at in range(len(stream) + 1):
        codec = ConnectionCodec(FRAME_BYTES_MAX)
        assert codec.receive_bytes(stream[:at]) + codec.receive_bytes(stream[at:]) == frames


def test_frames_that_come_byte_by_byte_come_out_whole() -> None:
    frames = [b"first", b"s", b"third frame"]
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    out = []
    for byte in framed(*frames):
        out += codec.receive_bytes(bytes((byte,)))
    assert out == frames
    assert codec.held_bytes == 0


def test_frames_in_random_pieces_come_out_whole() -> None:
    draw = random.Random(4)
    for _ in range(200):
        frames = [draw.randbytes(draw.randint(1, 60)) for _ in range(draw.randint(1, 8))]
        stream = framed(*frames)
        codec = ConnectionCodec(FRAME_BYTES_MAX)
        out = []
        while stream:
            size = draw.randint(1, 50)
            out += codec.receive_bytes(stream[:size])
            stream = stream[size:]
        assert out == frames


def test_nothing_comes_out_of_nothing() -> None:
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    assert codec.receive_bytes(b"") == []
    assert codec.receive_bytes(b"\x00\x00") == []
    assert codec.receive_bytes(b"") == []
    assert codec.receive_bytes(b"\x00\x01x") == [b"x"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(MalformedFrame, match=str(size)):
        ConnectionCodec(FRAME_BYTES_MAX).receive_bytes(struct.pack(">i", size))


def test_a_bad_size_is_seen_when_its_last_byte_comes() -> None:
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    assert codec.receive_bytes(b"\x7f\xff") == []
    with pytest.raises(MalformedFrame):
        codec.receive_bytes(b"\xff\xff")


def test_a_frame_of_exactly_the_bound_is_taken() -> None:
    frame = bytes(FRAME_BYTES_MAX)
    assert ConnectionCodec(FRAME_BYTES_MAX).receive_bytes(framed(frame)) == [frame]


def test_only_what_was_received_is_held_whatever_the_size_claims() -> None:
    codec = ConnectionCodec(2**31 - 1)
    assert codec.receive_bytes(struct.pack(">i", 2**31 - 1) + b"abc") == []
    assert codec.held_bytes == 3


def test_a_whole_frame_before_a_part_of_the_next_is_not_kept_back() -> None:
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    assert codec.receive_bytes(framed(b"one") + b"\x00\x00\x00\x02t") == [b"one"]
    assert codec.held_bytes == 1
    assert codec.receive_bytes(b"w") == [b"tw"]
    assert codec.held_bytes == 0


def test_a_large_frame_in_small_and_large_pieces_comes_out_whole() -> None:
    draw = random.Random(9)
    frame = draw.randbytes(200_000)
    codec = ConnectionCodec(len(frame))
    stream = framed(frame) + framed(b"next")
    out = []
    while stream:
        size = draw.choice((1, 3, 100, 5_000, 30_000))
        out += codec.receive_bytes(stream[:size])
        stream = stream[size:]
    assert out == [frame, b"next"]
    assert all(type(part) is bytes for part in out)
    assert codec.held_bytes == 0


def test_after_a_frame_in_pieces_whole_frames_of_the_same_data_come_out_too() -> None:
    codec = ConnectionCodec(FRAME_BYTES_MAX)
    assert codec.receive_bytes(framed(b"one")[:6]) == []
    assert codec.receive_bytes(b"e" + framed(b"two", b"three") + b"\x00") == [
        b"one",
        b"two",
        b"three",
    ]
    assert codec.held_bytes == 1
