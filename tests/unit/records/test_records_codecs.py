"""Compression: every codec in both directions, frames of other clients, decompression bombs."""

import resource
import struct

import cramjam
import pytest

from zhumq.model.errors import CorruptMessage, UnsupportedCompressionType
from zhumq.records.codecs import Compression, compress, compression_of, crc32c, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"a", b"hello " * 1000, bytes(range(256)) * 2000])
def test_every_codec_decompresses_what_it_compressed(codec: Compression, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), size_max=MEBIBYTE)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: Compression) -> None:
    whole = bytes(compress(codec, b"hello world " * 100))
    for data in (b"", b"\xff", b"garbage" * 20, whole[:-3], whole[: len(whole) // 2]):
        with pytest.raises(CorruptMessage):
            decompress(codec, data, size_max=MEBIBYTE)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_without_its_memory(codec: Compression) -> None:
    bomb = bytes(compress(codec, bytes(64 * MEBIBYTE)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptMessage):
        decompress(codec, bomb, size_max=MEBIBYTE)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 16 * 1024  # KiB, the unit of ru_maxrss


@pytest.mark.parametrize("codec", CODECS)
def test_the_cap_itself_is_allowed(codec: Compression) -> None:
    data = bytes(100_000)
    assert len(decompress(codec, compress(codec, data), size_max=100_000)) == 100_000
    with pytest.raises(CorruptMessage):
        decompress(codec, compress(codec, data), size_max=99_999)


def test_snappy_without_blocks_is_read_as_well() -> None:
    data = b"hello " * 1000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert bytes(decompress(Compression.SNAPPY, memoryview(raw))) == data


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_a_wrong_snappy_block_length_is_corrupt(length: int) -> None:
    data = bytes(compress(Compression.SNAPPY, b"hello"))
    with pytest.raises(CorruptMessage):
        decompress(Compression.SNAPPY, data[:16] + struct.pack(">i", length) + data[20:])
    with pytest.raises(CorruptMessage):
        decompress(Compression.SNAPPY, data + b"\x00\x00")


def test_lz4_blocks_do_not_refer_to_each_other() -> None:
    # KafkaLZ4BlockInputStream, the Java client's reader, refuses frames without this flag.
    assert bytes(compress(Compression.LZ4, b"x" * 200_000))[4] & 0x20


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(UnsupportedCompressionType):
        compression_of(5)


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283
