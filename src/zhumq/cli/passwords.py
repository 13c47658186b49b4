"""Passwords of commands: from a file, from a reference, or with a warning from the command line."""

import sys
from pathlib import Path

from zhumq.cli.options import CommandFailed
from zhumq.host.references import SystemReferences
from zhumq.model.password import Password
from zhumq.model.secret_references import has_reference, resolve_references


def password_of(*, file: Path | None, reference: str | None, option: str) -> Password | None:
    """The password of a command; None if neither is given. Raises CommandFailed and SettingInvalid."""
    if file is not None and reference is not None:
        raise CommandFailed(f"give {option}-file or {option}, not both")
    if file is not None:
        reference = f"${{file:{file}}}"
    if reference is None:
        return None
    if not has_reference(reference):
        _warn(f"{option} shows the password to everyone who can list processes: use {option}-file")
    resolved = resolve_references({option: reference}, SystemReferences())
    for warning in resolved.warnings:
        _warn(warning)
    if not resolved.texts[option]:
        raise CommandFailed(f"{option}: the password is empty")
    return Password(resolved.texts[option])


def _warn(text: str) -> None:
    sys.stderr.write(f"zhumq: warning: {text}\n")
