"""Settings of retention: which watermarks and which time of the day are usable."""

import pytest

from zhumq.broker.config import BrokerConfig
from zhumq.broker.retention_settings import retention_settings
from zhumq.model.errors import SettingInvalid
from zhumq.storage.retention import Watermarks
from zhumq.storage.retention_pass import RetentionSettings


def load(**settings: str) -> RetentionSettings:
    texts = {key.replace("_", "."): text for key, text in settings.items()}
    return retention_settings(BrokerConfig.load(settings=texts).settings)


def test_by_default_the_marks_are_75_85_and_90_and_there_is_no_hour() -> None:
    assert load() == RetentionSettings(
        watermarks=Watermarks(expired_percent=75, forced_percent=85, refused_percent=90),
        start_minute=None,
    )


def test_the_watermarks_have_to_rise() -> None:
    wrong = r"disk.watermark.forced.percent=70 is not above disk.watermark.expired.percent=75"
    with pytest.raises(SettingInvalid, match=wrong):
        load(disk_watermark_forced_percent="70")
    with pytest.raises(SettingInvalid, match=r"refused.percent=85 is not above .*forced"):
        load(disk_watermark_refused_percent="85")
    with pytest.raises(SettingInvalid, match=r"a value from 1 to 100"):
        load(disk_watermark_refused_percent="101")
    with pytest.raises(SettingInvalid, match="a whole number"):
        load(disk_watermark_expired_percent="75%")


def test_a_watermark_of_100_is_off_and_the_others_still_have_to_rise() -> None:
    assert load(disk_watermark_forced_percent="100").watermarks.forced_percent == 100
    load(disk_watermark_expired_percent="100")
    with pytest.raises(SettingInvalid, match=r"refused.percent=60 is not above .*expired"):
        load(disk_watermark_forced_percent="100", disk_watermark_refused_percent="60")


@pytest.mark.parametrize(
    ("text", "minute"), [("04:00", 240), ("00:00", 0), ("23:59", 1439), ("", None)]
)
def test_the_hour_begins_at_a_time_of_the_day(text: str, minute: int | None) -> None:
    assert load(log_retention_delete_at=text).start_minute == minute


@pytest.mark.parametrize("text", ["4", "4:00", "24:00", "04:60", "04:00:00", "four", "-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SettingInvalid, match=r"it takes a time of the day, such as 04:00"):
        load(log_retention_delete_at=text)
