"""Headers of messages that have a meaning here, and that any Kafka client can set."""

from collections.abc import Iterable
from typing import Final

TAGS_HEADER: Final = "zhumq-tags"
TAGS_MAX: Final = 64  # of one message; further ones do not count
_SEPARATOR: Final = ","


def split_tags(value: bytes | None) -> tuple[bytes, ...]:
    """The tags in the value of a tags header: separated by commas, without the spaces around them."""
    if not value:
        return ()
    parts = value.split(_SEPARATOR.encode(), TAGS_MAX)[:TAGS_MAX]
    return tuple(dict.fromkeys(tag for each in parts if (tag := each.strip())))


def format_tags(tags: Iterable[str]) -> str:
    """The value of the header for these tags. Raises ValueError for a tag that no filter could name."""
    listed = [tags] if isinstance(tags, str) else list(tags)
    for tag in listed:
        if not tag or tag != tag.strip() or _SEPARATOR in tag or "|" in tag:
            raise ValueError(
                f"{tag!r} is not a tag: a tag is a text without comma, | and space at its ends"
            )
    return _SEPARATOR.join(listed)
