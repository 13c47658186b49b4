import pytest

from zhumq.model.errors import SettingInvalid
from zhumq.model.password import Password
from zhumq.model.settings import Setting, Settings, SettingsTable, SettingType

SECRET = "s3cr3t-hunter2"
TABLE = SettingsTable(
    Setting(name="key.password", type=SettingType.PASSWORD, default="", documentation="."),
    Setting(name="count", type=SettingType.INT, default="1", documentation="."),
)


def test_a_password_does_not_show_itself() -> None:
    password = Password(SECRET)
    shown = f"{password} {password!r} {password!s} {[password]} " + "%s %r" % (password, password)  # noqa: UP031
    assert SECRET not in shown
    assert password.reveal() == SECRET
    assert not hasattr(password, "__dict__")


def test_a_password_is_compared_by_its_text() -> None:
    assert Password("a") == Password("a") != Password("b")
    assert Password("a") != "a"
    assert len({Password("a"), Password("a")}) == 1
    assert Password("a")
    assert not Password("")


def test_a_password_setting_is_read_as_a_password_and_not_as_text() -> None:
    settings = Settings(TABLE, {"key.password": SECRET})
    assert settings.password("key.password") == Password(SECRET)
    assert not Settings(TABLE, {}).password("key.password")
    with pytest.raises(AssertionError) as refused:
        settings.text("key.password")
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(settings)


def test_an_error_shows_the_reference_in_place_of_the_text_behind_it() -> None:
    with pytest.raises(SettingInvalid) as refused:
        TABLE.check({"count": SECRET}, {"count": "${file:/a}"})
    assert str(refused.value) == "count='${file:/a}' is not usable: it takes a whole number"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_password_cannot_be_a_dynamic_setting() -> None:
    with pytest.raises(AssertionError):
        Setting(
            name="key.password",
            type=SettingType.PASSWORD,
            default="",
            documentation=".",
            changes_while_running=True,
        )
