"""Patterns of LIKE: text operations for those with % alone, RE2 for those with _. Both are linear in the text."""

from collections.abc import Callable, Sequence
from typing import Any, Final

MEMORY_BYTES_MAX: Final = 256 * 1024  # of the tables of one pattern
PATTERN_CHARACTERS_MAX: Final = 200

_ANY_TEXT: Final = object()
_ANY_CHARACTER: Final = object()


class PatternTooComplex(Exception):
    """The pattern is longer than one with _ may be."""


def has_single_wildcard(pattern: str, escape: str) -> bool:
    """Whether the pattern has an _ that stands for any character, and so costs tables."""
    return _ANY_CHARACTER in _parts(pattern, escape)


def like(pattern: str, escape: str) -> Callable[[str], bool]:
    """Whether a text matches the pattern: % is any text, _ is any character. Raises PatternTooComplex."""
    parts = _parts(pattern, escape)
    if _ANY_CHARACTER in parts:
        return _expression(pattern, parts)
    texts = [part for part in parts if isinstance(part, str)]
    if _ANY_TEXT not in parts:
        whole = "".join(texts)
        return lambda text: text == whole
    begin = texts.pop(0) if isinstance(parts[0], str) else ""
    end = texts.pop() if isinstance(parts[-1], str) else ""
    if not texts and not end:
        return lambda text: text.startswith(begin)
    return _in_turn(begin, texts, end)


def _in_turn(begin: str, inner: Sequence[str], end: str) -> Callable[[str], bool]:
    """The first place of each text behind the one before leaves the most room for the others."""

    def matches(text: str) -> bool:
        last = len(text) - len(end)
        position = len(begin)
        if position > last or not text.startswith(begin) or not text.endswith(end):
            return False
        for each in inner:
            position = text.find(each, position, last)
            if position < 0:
                return False
            position += len(each)
        return True

    return matches


def _parts(pattern: str, escape: str) -> list[object]:
    """The pattern as texts and wildcards; adjacent % are one."""
    parts: list[object] = []
    is_escaped = False
    for character in pattern:
        if escape and character == escape and not is_escaped:
            is_escaped = True
            continue
        if not is_escaped and character == "%":
            if not parts or parts[-1] is not _ANY_TEXT:
                parts.append(_ANY_TEXT)
        elif not is_escaped and character == "_":
            parts.append(_ANY_CHARACTER)
        elif parts and isinstance(parts[-1], str):
            parts[-1] += character
        else:
            parts.append(character)
        is_escaped = False
    return parts


def _expression(pattern: str, parts: list[object]) -> Callable[[str], bool]:
    # Loaded at the first pattern that needs it.
    import re2  # noqa: PLC0415

    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternTooComplex(f"a pattern with _ has at most {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.dot_nl = True
    options.max_mem = MEMORY_BYTES_MAX
    source = "".join(
        re2.escape(part) if isinstance(part, str) else ".*" if part is _ANY_TEXT else "."
        for part in parts
    )
    expression: Any = re2.compile(source, options)

    def matches(text: str) -> bool:
        try:
            return expression.fullmatch(text) is not None
        except UnicodeEncodeError:
            return False  # JSON can hold half a character, which RE2 cannot read.

    return matches
