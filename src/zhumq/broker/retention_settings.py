"""Settings of retention: the watermarks of the disk, and the hour in which expired segments are deleted."""

import itertools
import re
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.storage.retention import MARK_OFF, Watermarks
from zhumq.storage.retention_pass import RetentionSettings

_DEFAULT: Final = Watermarks()
_EXPIRED: Final = "disk.watermark.expired.percent"
_FORCED: Final = "disk.watermark.forced.percent"
_REFUSED: Final = "disk.watermark.refused.percent"
_DELETE_AT: Final = "log.retention.delete.at"
_TIME_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


def _percent(name: str, default: int, documentation: str) -> Setting:
    return Setting(
        name=name,
        type=SettingType.INT,
        default=str(default),
        documentation=documentation,
        minimum=1,
        maximum=MARK_OFF,
    )


RETENTION_SETTINGS: Final = (
    Setting(
        name=_DELETE_AT,
        type=SettingType.STRING,
        default="",
        documentation="Segments older than retention.ms are deleted only in the hour from this time of the"
        " day on, such as 04:00, by the broker's own clock and time zone. Empty: at any time.",
    ),
    _percent(
        _EXPIRED,
        _DEFAULT.expired_percent,
        "How full the disk is when segments older than retention.ms go at once, whatever the hour, and files of"
        " deleted segments without delay. 100: never.",
    ),
    _percent(
        _FORCED,
        _DEFAULT.forced_percent,
        "How full the disk is when the oldest segments go whatever their age, of all topics on the disk. 100: never.",
    ),
    _percent(
        _REFUSED,
        _DEFAULT.refused_percent,
        "How full the disk is when the broker takes no more messages; consumers go on. 100: never.",
    ),
)


def retention_settings(settings: Settings) -> RetentionSettings:
    """Raises SettingInvalid."""
    marks = {name: settings.integer(name) for name in (_EXPIRED, _FORCED, _REFUSED)}
    rising = [(name, mark) for name, mark in marks.items() if mark != MARK_OFF]
    for (lower_name, lower), (name, mark) in itertools.pairwise(rising):
        if mark <= lower:
            raise SettingInvalid(
                f"{name}={mark} is not above {lower_name}={lower}: the watermarks have to rise"
                f" (or be {MARK_OFF}: off)"
            )
    return RetentionSettings(
        watermarks=Watermarks(
            expired_percent=marks[_EXPIRED],
            forced_percent=marks[_FORCED],
            refused_percent=marks[_REFUSED],
        ),
        start_minute=_start_minute(settings.text(_DELETE_AT)),
    )


def _start_minute(text: str) -> int | None:
    if not text.strip():
        return None
    found = _TIME_OF_DAY.fullmatch(text.strip())
    if found is None:
        raise SettingInvalid(
            f"{_DELETE_AT}={text!r} is not usable: it takes a time of the day, such as 04:00"
        )
    return int(found[1]) * 60 + int(found[2])
