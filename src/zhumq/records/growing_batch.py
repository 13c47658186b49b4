"""A record batch that grows: each record is encoded when it is added."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from zhumq.records.builder import append_varint, assemble_batch
from zhumq.records.codecs import Compression

HeaderPair = tuple[str, bytes | None]

_NO_FIELD: Final = b"\x01"  # -1, the length of a key or a value that is null
_NO_HEADERS: Final = b"\x00"
_LENGTH_BYTES_MAX: Final = 5  # of a varint


def _varint(value: int) -> bytes:
    output = bytearray()
    append_varint(output, value)
    return bytes(output)


# Lengths and deltas of nearly all records: looked up in a fifth of the time that encoding takes.
_VARINTS: Final = tuple(_varint(value) for value in range(4096))
_KNOWN: Final = len(_VARINTS)


class GrowingBatch:
    """Records of one partition that are sent together."""

    __slots__ = ("_base_timestamp", "_max_timestamp", "_section", "bytes", "count")

    def __init__(self) -> None:
        self._section: list[bytes] = []
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.count = 0
        self.bytes = HEADER_BYTES  # before compression

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[HeaderPair],
        timestamp_ms: int,
    ) -> None:
        count = self.count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        delta = timestamp_ms - self._base_timestamp
        body = b"\x00%b%b%b%b%b" % (
            _VARINTS[delta] if 0 <= delta < _KNOWN else _varint(delta),
            _VARINTS[count] if count < _KNOWN else _varint(count),
            _NO_FIELD if key is None else _field(key),
            _NO_FIELD if value is None else _field(value),
            _encode_headers(headers) if headers else _NO_HEADERS,
        )
        length = len(body)
        encoded = (_VARINTS[length] if length < _KNOWN else _varint(length)) + body
        self._section.append(encoded)
        self.bytes += len(encoded)
        self.count = count + 1

    def extend(
        self,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        first: int,
        timestamp_ms: int,
        *,
        bytes_max: int,
        bytes_limit: int,
    ) -> int:
        """Append records without headers, from an index on, until the batch has `bytes_max`. None: without keys.

        A record that would make it larger than `bytes_limit` is left out, unless it is the only one. Returns
        the index after the last one that was appended.
        """
        base = self._base_timestamp if self.count else timestamp_ms
        # A record begins with its attributes, which are 0, and ends with the number of its headers.
        timestamp = b"\x00" + _varint(timestamp_ms - base)
        fixed = len(timestamp) + 1
        known, varints, add = _KNOWN, _VARINTS, self._section.append
        before = count = self.count
        size = self.bytes
        left = zip(repeat(None) if keys is None else keys[first:], values[first:], strict=False)
        try:
            for key, value in left:
                delta = varints[count] if count < known else _varint(count)
                key_field = _NO_FIELD if key is None else _field(key)
                if value is None:
                    length, prefix, value = 0, _NO_FIELD, b""
                else:
                    length = len(value)
                    prefix = varints[length] if length < known else _varint(length)
                body = fixed + len(delta) + len(key_field) + len(prefix) + length
                if size + body > bytes_limit - _LENGTH_BYTES_MAX and count:
                    break
                encoded = b"%b%b%b%b%b%b\x00" % (
                    varints[body] if body < known else _varint(body),
                    timestamp,
                    delta,
                    key_field,
                    prefix,
                    value,
                )
                add(encoded)
                count += 1
                size += len(encoded)
                if size >= bytes_max:
                    break
        finally:  # A value that is no bytes ends the loop; those before it stay.
            if count > before:
                latest = self._max_timestamp
                self._max_timestamp = max(latest, timestamp_ms) if before else timestamp_ms
                self._base_timestamp = base
                self.count = count
                self.bytes = size
        return first + count - before

    def build(
        self,
        *,
        compression: Compression,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> bytes:
        """The batch of a transaction."""
        header = BatchHeader(
            base_offset=0,
            batch_length=BATCH_LENGTH_MIN,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(compression) | TRANSACTIONAL_FLAG,
            last_offset_delta=self.count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=self.count,
        )
        return assemble_batch(header, b"".join(self._section))


def _field(data: bytes) -> bytes:
    length = len(data)
    return (_VARINTS[length] if length < _KNOWN else _varint(length)) + data


def _encode_headers(headers: Sequence[HeaderPair]) -> bytes:
    parts = [_varint(len(headers))]
    for name, value in headers:
        parts.append(_field(name.encode()))
        parts.append(_NO_FIELD if value is None else _field(value))
    return b"".join(parts)
