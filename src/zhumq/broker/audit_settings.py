"""Settings of the audit log."""

from typing import Final

from zhumq.model.settings import Setting, SettingType

AUDIT_SETTINGS: Final = (
    Setting(
        name="audit.log.enable",
        type=SettingType.BOOLEAN,
        default="true",
        documentation="Whether logins, refusals and changes are written to the audit log. Without"
        " authentication and an authorizer there is nothing to write.",
    ),
    Setting(
        name="audit.log.file",
        type=SettingType.STRING,
        default="",
        documentation="The file of the audit log; empty: audit.log in the data folder.",
    ),
    Setting(
        name="audit.log.max.bytes",
        type=SettingType.LONG,
        default=str(50 << 20),
        documentation="The size at which the file of the audit log is rotated.",
        minimum=64 << 10,
    ),
    Setting(
        name="audit.log.files",
        type=SettingType.INT,
        default="5",
        documentation="The most files of the audit log: the current one and rotated ones.",
        minimum=1,
        maximum=1_000,
    ),
)
