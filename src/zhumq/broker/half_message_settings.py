"""Settings of half messages."""

from typing import Final

from zhumq.model.settings import Setting, SettingType, integer_setting

_DAY_MS: Final = 24 * 3_600_000


HALF_MESSAGE_SETTINGS: Final = (
    integer_setting(
        "half.message.check.first.ms",
        6_000,
        "After this time a producer is asked about a half message that is not decided.",
    ),
    integer_setting(
        "half.message.check.interval.ms",
        30_000,
        "The time between two checks of a half message.",
    ),
    integer_setting(
        "half.message.check.max",
        15,
        "After so many checks without a decision a half message is rolled back, and listed.",
        maximum=1_000,
    ),
    integer_setting(
        "half.message.pending.max",
        100_000,
        "The most half messages that a partition of __half_messages holds. More are refused.",
        maximum=10_000_000,
    ),
    Setting(
        name="half.message.retention.ms",
        type=SettingType.LONG,
        default=str(7 * _DAY_MS),
        documentation="How long a half message waits while no producer of its group is connected,"
        " and how long one that was given up is listed.",
        minimum=1,
    ),
    integer_setting(
        "half.message.topic.num.partitions",
        8,
        "Partitions of __half_messages, fixed when it is first created.",
    ),
    integer_setting(
        "half.message.topic.replication.factor",
        3,
        "Replicas of __half_messages; fewer while fewer brokers are alive.",
    ),
    integer_setting(
        "half.message.topic.segment.bytes",
        100 << 20,
        "The size of a segment of __half_messages.",
        minimum=1024,
    ),
)
