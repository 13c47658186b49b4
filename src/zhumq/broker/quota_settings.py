"""Settings of client quotas, under Kafka's names."""

from typing import Final

from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.security.quota import Sampling

_DEFAULT: Final = Sampling()

QUOTA_SETTINGS: Final = (
    Setting(
        name="quota.window.num",
        type=SettingType.INT,
        default=str(_DEFAULT.count),
        documentation="Over how many samples the rate of a client is measured for its quotas.",
        minimum=1,
        maximum=3_600,
    ),
    Setting(
        name="quota.window.size.seconds",
        type=SettingType.INT,
        default=str(_DEFAULT.size_ms // 1_000),
        documentation="The length of such a sample.",
        minimum=1,
        maximum=3_600,
    ),
)


def quota_sampling(settings: Settings) -> Sampling:
    return Sampling(
        count=settings.integer("quota.window.num"),
        size_ms=settings.integer("quota.window.size.seconds") * 1_000,
    )
