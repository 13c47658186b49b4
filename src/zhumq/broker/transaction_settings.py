"""Settings of transactions."""

from typing import Final

from zhumq.model.settings import Setting, SettingType, integer_setting

_DAY_MS: Final = 24 * 3_600_000


TRANSACTION_SETTINGS: Final = (
    integer_setting(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of __transaction_state, fixed when it is first created.",
    ),
    integer_setting(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of __transaction_state; fewer while fewer brokers are alive.",
    ),
    integer_setting(
        "transaction.state.log.segment.bytes",
        100 << 20,
        "The size of a segment of __transaction_state.",
        minimum=1024,
    ),
    integer_setting("transaction.max.timeout.ms", 900_000, "The longest transaction timeout."),
    integer_setting(
        "transactional.id.expiration.ms",
        7 * _DAY_MS,
        "How long a transactional id without transactions is kept.",
    ),
    Setting(
        name="transaction.two.phase.commit.enable",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Producers may prepare transactions that do not time out (KIP-939).",
    ),
)
