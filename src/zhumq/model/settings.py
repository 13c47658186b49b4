"""Definitions of settings: name, type, default, allowed values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.model.password import Password

# A setting of one listener: listener.name.NAME.SETTING, with the name in lower case.
LISTENER_PREFIX: Final = "listener.name."
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...] | Password


class SettingType(IntEnum):
    """The type codes that DescribeConfigs answers with."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. Values are stored and sent as text, and parsed where they are used."""

    name: str
    type: SettingType
    default: str
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    # For strings the legal values, for lists the legal elements. Empty: any value.
    allowed: tuple[str, ...] = ()
    # For broker settings: whether a running broker takes a new value.
    changes_while_running: bool = False
    # For broker settings: whether `listener.name.NAME.` before the name sets it for one listener.
    is_per_listener: bool = False

    def __post_init__(self) -> None:
        # Dynamic settings are stored in the clear in the metadata of the cluster.
        assert not (self.is_sensitive and self.changes_while_running), self.name

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a secret, which is never shown."""
        return self.type is SettingType.PASSWORD

    def parse(self, text: str, *, shown: str | None = None) -> Value:
        """The value in its own type. Raises SettingInvalid naming the setting and what it takes.

        With `shown` the error shows that in place of the text, which came from a file that may be secret.
        """
        try:
            return self._parse(text)
        except _NotTaken as wrong:
            given = text if shown is None else shown
            raise SettingInvalid(
                f"{self.name}={given!r} is not usable: it takes {wrong.expected}"
            ) from None

    def _parse(self, text: str) -> Value:
        match self.type:
            case SettingType.BOOLEAN:
                lowered = text.strip().lower()
                if lowered not in ("true", "false"):
                    raise _NotTaken("true or false")
                return lowered == "true"
            case SettingType.INT | SettingType.LONG:
                return self._parse_integer(text)
            case SettingType.DOUBLE:
                return self._parse_number(text)
            case SettingType.LIST:
                elements = tuple(part.strip() for part in text.split(",") if part.strip())
                for element in elements:
                    if self.allowed and element not in self.allowed:
                        raise _NotTaken(f"a list of {', '.join(self.allowed)}")
                return elements
            case SettingType.STRING:
                if self.allowed and text not in self.allowed:
                    raise _NotTaken(f"one of {', '.join(self.allowed)}")
                return text
            case SettingType.PASSWORD:
                return Password(text)

    def _parse_integer(self, text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            raise _NotTaken("a whole number") from None
        widest = INT32_MAX if self.type is SettingType.INT else INT64_MAX
        self._check_range(value, -widest - 1, widest)
        return value

    def _parse_number(self, text: str) -> float:
        try:
            value = float(text.strip())
        except ValueError:
            raise _NotTaken("a number") from None
        self._check_range(value, float("-inf"), float("inf"))
        return value

    def _check_range(self, value: float, lowest: float, highest: float) -> None:
        low = lowest if self.minimum is None else self.minimum
        high = highest if self.maximum is None else self.maximum
        if not low <= value <= high:
            raise _NotTaken(f"a value from {low} to {high}")


class _NotTaken(Exception):
    """The text is no value of the setting, which takes what `expected` says."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def integer_setting(
    name: str, default: int, documentation: str, *, minimum: int = 1, maximum: int | None = None
) -> Setting:
    """A whole number: an INT, or a LONG if its default needs one."""
    return Setting(
        name=name,
        type=SettingType.INT if abs(default) <= INT32_MAX else SettingType.LONG,
        default=str(default),
        documentation=documentation,
        minimum=minimum,
        maximum=maximum,
    )


class SettingsTable:
    """The known settings, by name."""

    def __init__(self, *settings: Setting) -> None:
        self.by_name: Mapping[str, Setting] = {setting.name: setting for setting in settings}

    def setting(self, name: str) -> Setting:
        setting = self.find(name)
        if setting is None:
            raise SettingInvalid(f"there is no setting named {name!r}")
        return setting

    def find(self, name: str) -> Setting | None:
        """The setting of this name, which may be that of one listener."""
        setting = self.by_name.get(name)
        if setting is None and name.startswith(LISTENER_PREFIX):
            base = self.by_name.get(name.removeprefix(LISTENER_PREFIX).partition(".")[2])
            if base is not None and base.is_per_listener:
                return replace(base, name=name)
        return setting

    def check(self, texts: Mapping[str, str], shown: Mapping[str, str] | None = None) -> None:
        """Raise SettingInvalid for the first unknown name or impossible value.

        `shown` has what errors show in place of values that may be secret.
        """
        for name, text in texts.items():
            self.setting(name).parse(text, shown=shown.get(name) if shown is not None else None)


class Settings:
    """The effective values: the given text, or the default of the table."""

    __slots__ = ("_table", "given")

    def __init__(self, table: SettingsTable, given: Mapping[str, str]) -> None:
        self._table = table
        self.given = given

    def of_listener(self, name: str) -> "Settings":
        """The settings with those of one listener in place of the general ones."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {
            key.removeprefix(prefix): text
            for key, text in self.given.items()
            if key.startswith(prefix)
        }
        return Settings(self._table, {**self.given, **own})

    def text(self, name: str) -> str:
        assert not self._table.setting(name).is_sensitive, f"{name} is read with `password`"
        return self._text(name)

    def password(self, name: str) -> Password:
        """The secret; empty if it is not set."""
        value = self._table.setting(name).parse(self._text(name))
        assert isinstance(value, Password), name
        return value

    def integer(self, name: str) -> int:
        value = self._table.setting(name).parse(self._text(name))
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self._table.setting(name).parse(self._text(name))
        assert isinstance(value, int | float), name
        return float(value)

    def boolean(self, name: str) -> bool:
        value = self._table.setting(name).parse(self._text(name))
        assert isinstance(value, bool), name
        return value

    def elements(self, name: str) -> tuple[str, ...]:
        value = self._table.setting(name).parse(self._text(name))
        assert isinstance(value, tuple), name
        return value

    def _text(self, name: str) -> str:
        return self.given.get(name, self._table.setting(name).default)
