"""A consumer's membership of its group, read from the text that librdkafka gives out for it. Pure."""

import struct
from dataclasses import dataclass
from typing import Final

from zhumq.client.errors import RequestFailed

# Of rd_kafka_consumer_group_metadata_write: | magic | generation i32, native order | group \0 | member \0 |
# instance is null u8 | instance \0, unless it is null |
_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """The member that commits offsets; the coordinator refuses one whose generation is over (KIP-447)."""

    group: str
    generation: int = -1  # with KIP-848 the member epoch
    member: str = ""
    instance: str | None = None

    @property
    def is_member(self) -> bool:
        return self.generation >= 0 and bool(self.member)


def parse_group_metadata(data: bytes) -> GroupMetadata:
    """The membership in what `Consumer.consumer_group_metadata()` of confluent-kafka returns."""
    start = len(_MAGIC) + _GENERATION.size
    fields = data[start:].split(b"\x00", 2)
    if not data.startswith(_MAGIC) or len(fields) != 3 or not fields[2]:
        raise RequestFailed(
            "this version of confluent-kafka writes a consumer's group metadata in an unknown form"
        )
    (generation,) = _GENERATION.unpack_from(data, len(_MAGIC))
    group, member, rest = fields
    return GroupMetadata(
        group=group.decode(),
        generation=generation,
        member=member.decode(),
        instance=None if rest[0] else rest[1:].rstrip(b"\x00").decode(),
    )
