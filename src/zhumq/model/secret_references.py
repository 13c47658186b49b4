"""References to secrets in settings, such as `${file:/path}`: replaces them by what they refer to. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.model.errors import SettingInvalid
from zhumq.model.properties import parse_properties

REFERENCED_BYTES_MAX: Final = 64 * 1024
# The syntax of Kafka's config providers (KIP-297, KIP-421, KIP-887): ${provider:[path:]key}.
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):([^}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedFile:
    """A file that a setting refers to. `content` is cut off behind REFERENCED_BYTES_MAX + 1 bytes."""

    content: bytes
    is_open_to_others: bool  # other users of the machine, or the group, may read or write it

    def __repr__(self) -> str:
        return f"ReferencedFile({len(self.content)} bytes)"


class ReferenceSources(Protocol):
    """Where references lead: the environment and the files of the machine."""

    def variable(self, name: str) -> str | None:
        """The environment variable, or None."""

    def file(self, path: str) -> ReferencedFile:
        """Read a file. Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings without references. `given` has the settings that had some, as they were given."""

    texts: dict[str, str]
    given: Mapping[str, str]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Resolved(given={self.given!r})"


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def resolve_references(texts: Mapping[str, str], sources: ReferenceSources) -> Resolved:
    """Replace every reference in the values. What a reference leads to is not looked at again.

    Raises SettingInvalid, which names the setting and the reference and never the content.
    """
    resolver = _Resolver(sources)
    given = {name: text for name, text in texts.items() if has_reference(text)}
    resolved = {name: resolver.resolve(name, text) for name, text in texts.items()}
    return Resolved(texts=resolved, given=given, warnings=tuple(resolver.warnings))


class _Resolver:
    def __init__(self, sources: ReferenceSources) -> None:
        self._sources = sources
        self._files: dict[str, bytes] = {}  # a file is read, and warned of, once
        self.warnings: list[str] = []

    def resolve(self, name: str, text: str) -> str:
        return _REFERENCE.sub(lambda match: self._value(name, match), text)

    def _value(self, name: str, match: re.Match[str]) -> str:
        reference, provider, target = match[0], match[1], match[2]
        if provider == "env":
            value = self._sources.variable(target)
            if value is None:
                raise _unusable(name, reference, f"the environment variable {target} is not set")
            return value
        if provider == "file":
            path, colon, key = target.partition(":")
            text = self._text(name, reference, path)
            return self._property(name, reference, text, key) if colon else _without_newline(text)
        # Not named: what looks like a reference may be a part of a password.
        raise SettingInvalid(
            f"{name} has a reference that begins neither with ${{env: nor with ${{file:; correct it, or"
            " put a value that is meant literally into a file of its own"
        )

    def _text(self, name: str, reference: str, path: str) -> str:
        content = self._files.get(path)
        if content is None:
            content = self._files[path] = self._read(name, reference, path)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise _unusable(name, reference, f"{path} is not text in UTF-8") from None

    def _read(self, name: str, reference: str, path: str) -> bytes:
        try:
            file = self._sources.file(path)
        except OSError as reason:
            raise _unusable(name, reference, f"cannot read {path}: {reason.strerror}") from None
        except ValueError:  # a zero byte in the path
            raise _unusable(name, reference, "this is not a path") from None
        if len(file.content) > REFERENCED_BYTES_MAX:
            raise _unusable(
                name, reference, f"{path} has more than {REFERENCED_BYTES_MAX // 1024} KiB"
            )
        if file.is_open_to_others:
            self.warnings.append(
                f"{path}, which {name} refers to, is open to other users of this machine:"
                f" `chmod 600 {path}`"
            )
        return file.content

    def _property(self, name: str, reference: str, text: str, key: str) -> str:
        try:
            return parse_properties(text)[key]
        except KeyError:
            raise _unusable(name, reference, f"the file has no key {key!r}") from None
        except ValueError as reason:
            raise _unusable(name, reference, f"not a properties file: {reason}") from None


def _without_newline(text: str) -> str:
    """Editors and `echo` end a file with a newline, which is no part of a secret."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _unusable(name: str, reference: str, reason: str) -> SettingInvalid:
    return SettingInvalid(f"{name}={reference} is not usable: {reason}")
