"""A secret as a value: its text is neither in `repr` nor in `str`, so no log line or error shows it."""

from typing import Final

HIDDEN: Final = "[hidden]"


class Password:
    """A secret text, which only `reveal` returns. An empty one stands for a setting that is not set."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself. Call this where it is used, and nowhere earlier."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
