"""The error of a filter that cannot be compiled: what is wrong, and the line with the place under it."""

from typing import Final

# Characters of the filter that an error shows on each side of the place.
SHOWN_CHARACTERS: Final = 40


class FilterInvalid(ValueError):
    """The text is not a filter. `position` counts the characters before the place."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.position = position
        begin = max(position - SHOWN_CHARACTERS, 0)
        end = position + SHOWN_CHARACTERS
        before = "..." if begin else ""
        after = "..." if end < len(text) else ""
        shown = "".join(each if each.isprintable() else " " for each in text[begin:end])
        caret = " " * (len(before) + position - begin)
        self.headline = f"the filter is invalid at character {position + 1}: {problem}"
        self.excerpt = f"  {before}{shown}{after}\n  {caret}^"
        super().__init__(f"{self.headline}\n{self.excerpt}")
