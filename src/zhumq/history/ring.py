"""The layout of a ring of samples: slots of a fixed size, each with its time and checksum."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zhumq.history.fields import FIELDS, Sample, Subject, Values
from zhumq.records.codecs import crc32c

MAGIC: Final = b"zhumqhis"
VERSION: Final = 1
# | magic 8s | version u16 | length of a step in ms u32 | slots u32 | bytes of a slot u32 | checksum of these u32 |
_HEADER: Final = struct.Struct(">8sHIII")
_CHECKSUM: Final = struct.Struct(">I")
HEADER_BYTES: Final = 4_096  # of the file, so that a slot never shares a page with another
SLOT_BYTES: Final = 8_192
# | checksum of the rest u32 | bytes of the slot u32 | time i64 |, the figures of the broker, then topics and groups, each as
# | count u16 |, and for each | bytes of its name u16 | name | figures f64 ... |.
_SLOT_HEAD: Final = struct.Struct(">IIq")
_COUNT: Final = struct.Struct(">H")
_FIGURES: Final = {subject: struct.Struct(f">{len(fields)}d") for subject, fields in FIELDS.items()}
# The most of each in a slot, as far as they have room; a group with a longer name is left out.
TOPICS_MAX: Final = 40
GROUPS_MAX: Final = 40
NAME_BYTES_MAX: Final = 249
TOPICS_BYTES_MAX: Final = 5_120


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A file with one slot for each step of time, which is used again after `slots` steps."""

    step_ms: int
    slots: int

    @property
    def span_ms(self) -> int:
        return self.step_ms * self.slots

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.slots * SLOT_BYTES

    def header(self) -> bytes:
        """The beginning of the file."""
        fields = _HEADER.pack(MAGIC, VERSION, self.step_ms, self.slots, SLOT_BYTES)
        return fields + _CHECKSUM.pack(crc32c(fields))

    def begins(self, data: bytes) -> bool:
        """Whether a file that begins so is this ring, in this version."""
        header = self.header()
        return data[: len(header)] == header

    def slot_of(self, time_ms: int) -> int:
        return time_ms // self.step_ms % self.slots

    def position_of(self, slot: int) -> int:
        return HEADER_BYTES + slot * SLOT_BYTES

    def read(self, slot: int, data: bytes, now_ms: int) -> Sample | None:
        """The sample in a slot. None: there is none, it is torn or damaged, it is from an earlier turn of the ring, or from
        a time that the clock has not reached again since it was set back."""
        sample = decode_slot(data)
        if sample is None or self.slot_of(sample.time_ms) != slot:
            return None
        return sample if now_ms - self.span_ms < sample.time_ms <= now_ms else None


# The last hour, and the last day.
FINE: Final = Ring(step_ms=10_000, slots=360)
COARSE: Final = Ring(step_ms=60_000, slots=1_440)


def encode_slot(sample: Sample) -> bytes:
    """The slot of a sample, with as many topics and groups as have room."""
    body = [_FIGURES[Subject.BROKER].pack(*sample.broker)]
    body += _pack_named(sample.topics, Subject.TOPIC, TOPICS_MAX, TOPICS_BYTES_MAX)
    room = SLOT_BYTES - _SLOT_HEAD.size - sum(map(len, body))
    body += _pack_named(sample.groups, Subject.GROUP, GROUPS_MAX, room)
    data = b"".join(body)
    size = _SLOT_HEAD.size + len(data)
    assert size <= SLOT_BYTES
    head = _SLOT_HEAD.pack(0, size, sample.time_ms)[_CHECKSUM.size :]
    return _CHECKSUM.pack(crc32c(head + data)) + head + data


def decode_slot(data: bytes) -> Sample | None:
    """The sample of a slot; None if these bytes are none, whatever they are."""
    if len(data) < _SLOT_HEAD.size:
        return None
    checksum, size, time_ms = _SLOT_HEAD.unpack_from(data)
    if not _SLOT_HEAD.size <= size <= len(data):
        return None
    if crc32c(data[_CHECKSUM.size : size]) != checksum:
        return None
    position = _SLOT_HEAD.size
    try:
        broker = _FIGURES[Subject.BROKER].unpack_from(data, position)
        position += _FIGURES[Subject.BROKER].size
        topics, position = _unpack_named(data, position, Subject.TOPIC)
        groups, position = _unpack_named(data, position, Subject.GROUP)
    except (struct.error, UnicodeDecodeError):
        return None
    return Sample(time_ms, broker, topics, groups)


def _pack_named(
    named: Mapping[str, Values], subject: Subject, count_max: int, bytes_max: int
) -> list[bytes]:
    parts: list[bytes] = []
    count, left = 0, bytes_max - _COUNT.size
    figures = _FIGURES[subject]
    for name, values in named.items():
        encoded = name.encode("utf-8", "surrogatepass")
        size = _COUNT.size + len(encoded) + figures.size
        if len(encoded) > NAME_BYTES_MAX:
            continue
        if count == count_max or size > left:
            break
        parts += (_COUNT.pack(len(encoded)), encoded, figures.pack(*values))
        count += 1
        left -= size
    return [_COUNT.pack(count), *parts]


def _unpack_named(data: bytes, position: int, subject: Subject) -> tuple[dict[str, Values], int]:
    figures = _FIGURES[subject]
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    named: dict[str, Values] = {}
    for _ in range(count):
        (length,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        name = data[position : position + length].decode("utf-8", "surrogatepass")
        position += length
        named[name] = figures.unpack_from(data, position)
        position += figures.size
    return named, position
