"""Checksums and compression of record batches. Decompression never exceeds its size limit."""

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam
from crc32c import crc32c as crc32c  # noqa: PLC0414 - the one name the other rooms import

from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage, UnsupportedCompressionType

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024  # for a batch; Kafka bounds it by the fetch size only
GUESSED_RATIO = 4  # the first buffer is this many times the compressed size
GROWTH = 8  # the factor of each further attempt

# The framing of xerial's snappy, the Java library that Kafka uses:
# | "\x82SNAPPY\0" 8 bytes | version i32 | compatible version i32 | (length i32, raw block)* |
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
BLOCK_LENGTH = struct.Struct(">i")


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compression_of(code: int) -> Compression:
    """The codec of this code. Raises UnsupportedCompressionType for an unknown one."""
    try:
        return Compression(code)
    except ValueError:
        raise UnsupportedCompressionType(f"unknown compression {code}") from None


def compress(compression: Compression, data: Buffer) -> Buffer:
    """The records section of a batch, compressed as Kafka's clients do."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            # The Java client refuses frames whose blocks refer to each other.
            compressor = cramjam.lz4.Compressor(block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3))


def decompress(
    compression: Compression, data: Buffer, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The decompressed records section. Raises CorruptMessage if it has more than size_max bytes."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _decompress_growing(cramjam.gzip.decompress_into, data, size_max)
        case Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), size_max)
        case Compression.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, size_max)
        case Compression.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, size_max)


def _decompress_growing(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int
) -> memoryview:
    """Decompress into a buffer of fixed size, and into a larger one while that fails, up to size_max."""
    size = min(max(len(data) * GUESSED_RATIO, 64 * 1024), size_max)
    while True:
        output = bytearray(size)
        try:
            count = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if size >= size_max:
                raise CorruptMessage(f"cannot decompress into {size_max} bytes: {error}") from None
            size = min(size * GROWTH, size_max)
        else:
            return memoryview(output)[:count]


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, size_max: int) -> Buffer:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    blocks: list[bytearray] = []
    total = 0
    position = len(XERIAL_HEADER)
    while position < len(data):
        if position + BLOCK_LENGTH.size > len(data):
            raise CorruptMessage("a snappy block is cut off in its length")
        (length,) = BLOCK_LENGTH.unpack_from(data, position)
        position += BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptMessage(f"a snappy block says it has {length} bytes")
        block = _decompress_snappy_block(data[position : position + length], size_max - total)
        total += len(block)
        blocks.append(block)
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(data: memoryview, size_max: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > size_max:
            raise CorruptMessage(f"a snappy block of {size} bytes is over the cap of {size_max}")
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"cannot decompress snappy: {error}") from None
    return output
