"""The topic settings that a log uses; the broker maps Kafka's setting names to them."""

from dataclasses import dataclass, field
from enum import StrEnum

from zhumq.model.errors import SettingInvalid
from zhumq.records.batch import TimestampType

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
UNLIMITED = -1
SEGMENT_BYTES_LIMIT = 2**31 - 1  # positions are u32 in the index, and i32 in Kafka's tools


class CleanupPolicy(StrEnum):
    """What happens to old records."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRule:
    """What keys and values of a topic have to begin with: the id of a registered schema."""

    keys: bool
    values: bool
    any_subject: bool  # or only one of the topic's own subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's settings, as plain values; the defaults are Kafka's except for retention."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    retention_ms: int = 72 * HOUR_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1024 * 1024 + 12
    index_interval_bytes: int = 4096
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = HOUR_MS
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS
    # How much a restart after a crash may have to scan in one log, in bytes and in time.
    checkpoint_bytes: int = 64 * 1024 * 1024
    checkpoint_ms: int = 30_000
    index_keys: bool = False  # keep an index of keys and tags
    delay_max_ms: int = 0  # the longest delay of a message; 0: delay headers mean nothing
    # How many messages, and for how long, may be in a log and not on the disk.
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    schema_rule: SchemaRule | None = None  # None: messages need no schema
    validates_records: bool = False  # check every field of every record, or only the lengths
    # Derived from the above, once: every append uses them.
    is_compacted: bool = field(init=False)
    is_deleted: bool = field(init=False)
    checks_records: bool = field(init=False)
    stamps_append_time: bool = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= SEGMENT_BYTES_LIMIT:
            raise SettingInvalid(f"segment.bytes {self.segment_bytes} is not in 1 to 2^31 - 1")
        for name, value in (
            ("is_compacted", CleanupPolicy.COMPACT in self.cleanup_policy),
            ("is_deleted", CleanupPolicy.DELETE in self.cleanup_policy),
            (
                "checks_records",
                self.validates_records or CleanupPolicy.COMPACT in self.cleanup_policy,
            ),
            (
                "stamps_append_time",
                self.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            ),
        ):
            object.__setattr__(self, name, value)
