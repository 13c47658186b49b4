"""The limits and delays that rule groups, under Kafka's names."""

from dataclasses import dataclass
from enum import StrEnum


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy: which way a group with members may change its protocol."""

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
    """What an operator can set about groups; the defaults are Kafka's except where said."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    # group.initial.rebalance.delay.ms; 0 in single-node mode, so that a lone consumer starts at once.
    initial_rebalance_delay_ms: int = 0
    # group.max.size, in Kafka 2**31 - 1. A classic group is one record of at most 1 MB, into which the
    # assignments of more members do not fit.
    members_max: int = 10_000
    # Of the subscriptions of a classic group, for all protocols that its members offer.
    group_metadata_bytes_max: int = 3 << 20
    # Of all members of the groups of one shard. Kafka bounds neither.
    shard_member_bytes_max: int = 6 << 20
    # Kafka does not bound the ids it hands out to members that then never join.
    pending_members_max: int = 10_000
    # KIP-394: a member new to the group is given up if its first join does not end in this time.
    new_member_join_timeout_ms: int = 300_000
    # What is written of a group must fit into one batch of the internal topic (max.message.bytes).
    group_record_bytes_max: int = 1_000_000
    offset_metadata_bytes_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_protocol_enabled: bool = True  # group.coordinator.rebalance.protocols
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_members_max: int = 10_000  # group.consumer.max.size, in Kafka 2**31 - 1
    # group.consumer.assignors; the first one is for groups whose members do not choose.
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    share_session_timeout_ms: int = 45_000  # group.share.session.timeout.ms
    share_heartbeat_interval_ms: int = 5_000  # group.share.heartbeat.interval.ms
    share_members_max: int = 200  # group.share.max.size
