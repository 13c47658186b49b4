"""Regular expressions for topic names, matched by RE2 in time linear in the name."""

from typing import Any, Final

PATTERN_LENGTH_MAX: Final = 1_000
# Up to this size RE2 matches any name in microseconds: its tables fit into its memory.
PROGRAM_SIZE_MAX: Final = 2_500
MEMORY_BYTES_MAX: Final = 4 << 20  # of one expression


class RegexInvalid(Exception):
    """Not a regular expression, or one that this broker does not support; the message has the reason."""


class TopicRegex:
    """A compiled expression. As in Kafka, it must match the whole name. RE2 caches the newest ones."""

    def __init__(self, pattern: str) -> None:
        # Loaded at the first subscription that needs it: most brokers never see one.
        import re2  # noqa: PLC0415

        if len(pattern) > PATTERN_LENGTH_MAX:
            raise RegexInvalid(f"longer than {PATTERN_LENGTH_MAX} characters")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MEMORY_BYTES_MAX
        given: str | bytes = pattern
        if pattern.isascii():
            # Names are ASCII: without sequences of UTF-8 an expression is a quarter as large.
            given = pattern.encode()
            options.encoding = re2.Options.Encoding.LATIN1
        try:
            self._regex: Any = re2.compile(given, options)
        except re2.error as error:
            raise RegexInvalid(error.args[0].decode(errors="replace")) from None
        if self._regex.programsize > PROGRAM_SIZE_MAX:
            raise RegexInvalid("too complex")

    def matches(self, name: str) -> bool:
        return self._regex.fullmatch(name) is not None
