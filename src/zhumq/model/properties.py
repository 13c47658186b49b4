"""The parser of Java's properties files: `key=value` lines with comments, continued lines and escapes."""

import re
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_DIGITS: Final = 4
# A key ends at the first `=`, `:` or blank without a backslash before it.
_KEY_AND_VALUE: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_TRAILING_BACKSLASHES: Final = re.compile(r"\\*\Z")


def parse_properties(text: str) -> dict[str, str]:
    """The values by key, in the rules of java.util.Properties. The last one of a repeated key counts.

    Raises ValueError, without any of the text, for a `\\u` without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_AND_VALUE.fullmatch(line)
        assert match is not None, "the expression matches every line"
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> list[str]:
    """The lines without comments and blank ones; a backslash at the end continues a line."""
    lines: list[str] = []
    continued = ""
    is_continued = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = _TRAILING_BACKSLASHES.search(line)
        assert backslashes is not None, "the expression matches the empty text, too"
        is_continued = len(backslashes[0]) % 2 == 1
        continued += line[:-1] if is_continued else line
        if not is_continued:
            lines.append(continued)
            continued = ""
    return [*lines, continued] if continued else lines


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped.startswith("u"):
            if len(escaped) != 1 + _UNICODE_DIGITS:
                raise ValueError("a \\u is not followed by four hexadecimal digits")
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPED.sub(replace, text)
