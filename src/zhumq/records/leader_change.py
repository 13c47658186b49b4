"""The control batch with which a new leader begins its epoch."""

import struct
from typing import Final

from zhumq.records.batch import Record
from zhumq.records.builder import build_batch

# Kafka's number for it (KIP-595), among the kinds of control records.
LEADER_CHANGE_TYPE: Final = 2
# key: | version i16 | type i16 |     value: | version i16 | leader id i32 | no voters u8 x 2 | no tags u8 |
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hiBBB")
_EMPTY_ARRAY: Final = 1  # compact: one more than it holds


def build_leader_change(leader_id: int, *, timestamp: int) -> bytes:
    """One batch that says who leads from here on. Clients skip it, as all control records."""
    record = Record(
        timestamp=timestamp,
        key=_KEY.pack(0, LEADER_CHANGE_TYPE),
        value=_VALUE.pack(0, leader_id, _EMPTY_ARRAY, _EMPTY_ARRAY, 0),
    )
    return build_batch([record], is_control=True)
