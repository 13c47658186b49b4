"""Settings of delivery: Kafka's names for share groups, `delivery.` for what Kafka does not have."""

from typing import Final

from zhumq.model.settings import Setting, SettingType, integer_setting

_DAY_MS = 24 * 3_600_000


DELIVERY_SETTINGS: Final = (
    integer_setting(
        "share.coordinator.state.topic.num.partitions",
        16,
        "Partitions of __share_group_state, fixed when it is first created.",
    ),
    integer_setting(
        "share.coordinator.state.topic.replication.factor",
        3,
        "Replicas of __share_group_state; fewer while fewer brokers are alive.",
    ),
    integer_setting(
        "share.coordinator.state.topic.segment.bytes",
        16 << 20,
        "The size of a segment of __share_group_state.",
        minimum=1024,
    ),
    integer_setting(
        "group.share.session.timeout.ms",
        45_000,
        "A member of a share group without a heartbeat for this long leaves the group.",
    ),
    integer_setting(
        "group.share.heartbeat.interval.ms",
        5_000,
        "The heartbeat interval of members of a share group.",
    ),
    integer_setting("group.share.max.size", 200, "The most members of a share group."),
    integer_setting(
        "group.share.max.share.sessions", 2_000, "The most share sessions that are open at once."
    ),
    integer_setting(
        "group.share.record.lock.duration.ms",
        30_000,
        "The acquisition lock timeout of a record in a share group.",
        minimum=1_000,
        maximum=3_600_000,
    ),
    integer_setting(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered to a share group before it goes to the dead letters.",
        maximum=1_000,
    ),
    integer_setting(
        "group.share.partition.max.record.locks",
        2_000,
        "The most records of a partition that a share group has in flight.",
        minimum=100,
        maximum=100_000,
    ),
    Setting(
        name="group.share.auto.offset.reset",
        type=SettingType.STRING,
        default="latest",
        documentation="Where a share group starts on a partition that it has no offset for.",
        allowed=("earliest", "latest"),
    ),
    integer_setting(
        "delivery.max.deliveries",
        16,
        "How often a message is delivered to a subscription before it goes to the dead letters.",
        maximum=1_000,
    ),
    integer_setting(
        "delivery.lock.ms",
        30_000,
        "The acquisition lock timeout of a message that a push consumer holds.",
        minimum=100,
    ),
    integer_setting(
        "delivery.in.flight.max",
        50_000,
        "The most messages of a partition that a subscription has in flight.",
        maximum=1_000_000,
    ),
    integer_setting(
        "delivery.backoff.ms",
        1_000,
        "How long a message waits after its first failure; doubled for each one after it.",
        minimum=0,
    ),
    # With 16 deliveries a message that always fails is a dead letter after about two minutes.
    integer_setting(
        "delivery.backoff.max.ms", 10_000, "The longest backoff after a failure.", minimum=0
    ),
    integer_setting(
        "delivery.dead.letter.retention.ms",
        30 * _DAY_MS,
        "How long dead letters are kept; -1: for ever. Applies to dead letter topics created later.",
        minimum=-1,
    ),
)
