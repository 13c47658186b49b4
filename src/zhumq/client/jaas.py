"""The parser of `sasl.jaas.config`: a login module, its flag, and options. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[=;])
      | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """The login module of a client, without its package, and its options."""

    name: str  # "ScramLoginModule"
    options: Mapping[str, str]

    def __repr__(self) -> str:
        # The options hold the password.
        return f"LoginModule(name={self.name!r})"


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a value. Raises ValueError, which never holds an option's value."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError(
            "it is not `CLASS required NAME=VALUE ...;` (does it end with a semicolon?)"
        )
    (module, _), (flag, _) = tokens[0], tokens[1]
    if flag.lower() not in FLAGS:
        raise ValueError(f"the word after the login module is one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    while rest:
        if len(rest) < 3 or rest[0][1] or rest[1] != ("=", True) or rest[2][1]:
            last = next(reversed(options), None)
            place = f"after the option {last!r}" if last else f"after {flag}"
            raise ValueError(f"{place}, NAME=VALUE is expected (a value with signs needs quotes)")
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return LoginModule(name=module.rpartition(".")[2], options=options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words and signs; True marks a sign."""
    tokens: list[tuple[str, bool]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError("a quote is not closed")
        place = match.end()
        if match.lastgroup == "quoted":
            tokens.append((_ESCAPED.sub(_unescape, match[0][1:-1]), False))
        elif match.lastgroup != "blank":
            tokens.append((match[0], match.lastgroup == "sign"))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
