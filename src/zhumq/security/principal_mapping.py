"""Kafka's `ssl.principal.mapping.rules`: from the subject of a client certificate to a user name. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final

from zhumq.model.ids import Principal

DEFAULT_RULES: Final = "DEFAULT"
PATTERN_LENGTH_MAX: Final = 1_024
# As in Kafka: a slash or a backslash in a pattern or a replacement follows a backslash.
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)


class MappingRuleInvalid(ValueError):
    """A rule cannot be used: what is wrong with it, and where."""


class NoRuleMatches(ValueError):
    """The subject of a certificate, which no rule gives a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A part of a replacement: the text of a group of the pattern."""

    number: int


class _Rule:
    """`RULE:pattern/replacement/[LU]`."""

    def __init__(self, text: str, pattern: str, replacement: str, case: str) -> None:
        # Imported here: its library takes a tenth of the time in which a broker starts.
        import re2  # noqa: PLC0415

        if len(pattern) > PATTERN_LENGTH_MAX:
            raise MappingRuleInvalid(
                f"{text!r}: its pattern is longer than {PATTERN_LENGTH_MAX} characters"
            )
        options = re2.Options()
        options.log_errors = False
        try:
            self._pattern: Any = re2.compile(pattern, options)
        except re2.error as reason:
            why = reason.args[0]
            shown = why.decode(errors="replace") if isinstance(why, bytes) else why
            raise MappingRuleInvalid(f"{text!r}: its pattern cannot be used: {shown}") from None
        try:
            self._replacement = _parse_replacement(replacement, self._pattern.groups)
        except ValueError as reason:
            raise MappingRuleInvalid(f"{text!r}: {reason}") from None
        self._case = case

    def apply(self, subject: str) -> str | None:
        if self._pattern.fullmatch(subject) is None:
            return None
        name = self._replace_all(subject)
        if self._case == "L":
            return name.lower()
        return name.upper() if self._case == "U" else name

    def _replace_all(self, subject: str) -> str:
        """As Java's `replaceAll`, which also finds the empty match behind a match."""
        parts: list[str] = []
        copied = start = 0
        while start <= len(subject):
            match = self._pattern.search(subject, start)
            if match is None:
                break
            parts.append(subject[copied : match.start()])
            parts += [
                part if isinstance(part, str) else match.group(part.number) or ""
                for part in self._replacement
            ]
            copied = match.end()
            start = copied + 1 if match.end() == match.start() else copied
        parts.append(subject[copied:])
        return "".join(parts)


class PrincipalMapping:
    """The rules in their order: the first that matches gives the name."""

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        """Raises MappingRuleInvalid."""
        # None: DEFAULT, which takes the subject as it is.
        self._rules: list[_Rule | None] = []
        for split in _SPLITTER.finditer(rules.strip()):
            text = split[1]
            found = _PARSER.match(text)
            if found is None or found.end() != len(text):
                raise MappingRuleInvalid(
                    f"{text!r} is neither DEFAULT nor RULE:pattern/replacement/ with L, U or nothing at"
                    " its end"
                )
            if found[1] is not None:
                self._rules.append(None)
            elif found[2] is not None:
                self._rules.append(_Rule(text, found[2], found[3], found[4]))

    def principal(self, subject: str) -> Principal:
        """The principal of a certificate. Raises NoRuleMatches."""
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return Principal(f"User:{name}")
        raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches {subject!r}")


def _parse_replacement(text: str, groups: int) -> list[str | _Group]:
    """Java's syntax: `$1` is a group, a backslash takes the next character as it is. As in Kafka, a
    number beyond the groups of a pattern that has some is text."""
    parts: list[str | _Group] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                raise ValueError("its replacement ends with a backslash")
            parts.append(text[position])
            position += 1
        elif character == "$":
            if not (digits := re.match(r"[0-9]+", text[position:])):
                raise ValueError("a $ in its replacement needs a number; \\$ is the character")
            number, length = int(digits[0][0]), 1
            while length < len(digits[0]) and int(digits[0][: length + 1]) <= groups:
                length += 1
                number = int(digits[0][:length])
            if number <= groups:
                parts.append(_Group(number=number))
            elif groups:
                parts.append(f"${text[position : position + length]}")
            else:
                raise ValueError(f"its replacement names group {number}, and the pattern has none")
            position += length
        else:
            parts.append(character)
    return parts
