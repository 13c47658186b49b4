"""Settings of delayed messages."""

from typing import Final

from zhumq.model.settings import Setting, SettingType, integer_setting

_DAY_MS: Final = 24 * 3_600_000


DELAY_SETTINGS: Final = (
    Setting(
        name="delayed.message.delay.max.ms",
        type=SettingType.LONG,
        default=str(40 * _DAY_MS),
        documentation="The longest delay of a message. A longer one is refused.",
        minimum=1,
    ),
    integer_setting(
        "delayed.message.topic.num.partitions",
        8,
        "Partitions of __delayed_messages, fixed when it is first created.",
    ),
    integer_setting(
        "delayed.message.topic.replication.factor",
        3,
        "Replicas of __delayed_messages; fewer while fewer brokers are alive.",
    ),
    integer_setting(
        "delayed.message.topic.segment.bytes",
        100 << 20,
        "The size of a segment of __delayed_messages.",
        minimum=1024,
    ),
)
