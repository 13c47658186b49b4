"""Limits and delays of groups, with Kafka's names."""

from dataclasses import dataclass
from enum import StrEnum


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy: which protocol changes are allowed for a group with members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of groups; the defaults are Kafka's unless noted."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    # group.initial.rebalance.delay.ms; 0 in single-node mode, so that a lone consumer starts at once.
    initial_rebalance_delay_ms: int = 0
    # group.max.size, in Kafka 2**31 - 1. A classic group is one record of at most 1 MB, which cannot hold the
    # assignments of more members.
    members_max: int = 10_000
    # Size of the subscriptions of a classic group, for all protocols that its members offer.
    group_metadata_bytes_max: int = 3 << 20
    # Memory of all members of the groups of one shard. Kafka has no limit for either.
    shard_member_bytes_max: int = 6 << 20
    # Memory of the offsets of open transactions in one shard. Kafka has no limit.
    shard_pending_offset_bytes_max: int = 32 << 20
    # Kafka has no limit for ids of members that never join.
    pending_members_max: int = 10_000
    # KIP-394: a new member is removed if its first join does not complete in this time.
    new_member_join_timeout_ms: int = 300_000
    # The record of a group must fit into one batch of the internal topic (max.message.bytes).
    group_record_bytes_max: int = 1_000_000
    offset_metadata_bytes_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_protocol_enabled: bool = True  # group.coordinator.rebalance.protocols
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_members_max: int = 10_000  # group.consumer.max.size, in Kafka 2**31 - 1
    # group.consumer.assignors; the first one is the default.
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    share_session_timeout_ms: int = 45_000  # group.share.session.timeout.ms
    share_heartbeat_interval_ms: int = 5_000  # group.share.heartbeat.interval.ms
    share_members_max: int = 200  # group.share.max.size
