"""Reads the settings that a broker is given: a TOML file and `--set`, with their references resolved."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zhumq.broker.settings import BROKER_SETTINGS, COARSER_NAMES
from zhumq.host.references import SystemReferences, is_open_to_others
from zhumq.model.errors import SettingInvalid
from zhumq.model.secret_references import has_reference, resolve_references
from zhumq.model.settings import Settings


def read_settings(
    config_file: Path | None, flags: Mapping[str, str]
) -> tuple[Settings, tuple[str, ...]]:
    """The settings, `--set` before the file, and warnings for the log. Raises SettingInvalid."""
    in_file = _read_file(config_file) if config_file is not None else {}
    resolved = resolve_references({**in_file, **flags}, SystemReferences())
    finer = _with_finer_names(resolved.texts, resolved.given)
    BROKER_SETTINGS.check(finer, resolved.given)
    warnings = [*resolved.warnings]
    warnings += [
        f"--set {name}=... shows a password to everyone who can list processes:"
        f" give {name}=${{file:PATH}} or {name}=${{env:NAME}}"
        for name in _literal_passwords(flags)
    ]
    if config_file is not None and is_open_to_others(config_file):
        warnings += [
            f"{config_file}, which has the password {name}, is open to other users of this machine:"
            f" `chmod 600 {config_file}`, or give {name}=${{file:PATH}}"
            for name in _literal_passwords(in_file)
        ]
    return Settings(BROKER_SETTINGS, finer), tuple(warnings)


def _literal_passwords(texts: Mapping[str, str]) -> Iterable[str]:
    for name, text in texts.items():
        setting = BROKER_SETTINGS.find(name)
        if setting is not None and setting.is_sensitive and text and not has_reference(text):
            yield name


def _read_file(path: Path) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as reason:
        raise SettingInvalid(f"cannot read {path}: {reason.strerror}") from None
    except tomllib.TOMLDecodeError as reason:
        raise SettingInvalid(f"{path} is not TOML: {reason}") from None
    return dict(_flatten(content, ""))


def _flatten(content: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    """`log.segment.bytes = 1` and `[log.segment] bytes = 1` are the same setting."""
    pairs: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            pairs.extend(_flatten(value, f"{name}."))
        elif isinstance(value, bool):
            pairs.append((name, str(value).lower()))
        elif isinstance(value, list):
            pairs.append((name, ",".join(str(each) for each in value)))
        else:
            pairs.append((name, str(value)))
    return pairs


def _with_finer_names(texts: Mapping[str, str], shown: Mapping[str, str]) -> dict[str, str]:
    finer: dict[str, str] = {}
    for name, text in texts.items():
        if name not in COARSER_NAMES:
            finer[name] = text
            continue
        fine_name, factor = COARSER_NAMES[name]
        if fine_name in texts:
            continue
        try:
            value = int(text)
        except ValueError:
            given = shown.get(name, text)
            raise SettingInvalid(f"{name}={given!r} is not a whole number") from None
        finer[fine_name] = str(value * factor if value >= 0 else value)
    return finer
