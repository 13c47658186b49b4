"""Pages of listings: a limit, and a cursor that says after which item the next page begins. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from zhumq.web.problems import invalid

LIMIT_MAX: Final = 1_000
LIMIT_DEFAULT: Final = 100
OFFSET_MAX: Final = 2**63 - 1

Item = TypeVar("Item")
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="The most items of the page.")]
After = Annotated[
    str, Meta(max_length=8_192, description="`next` of the page before; nothing for the first.")
]


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a listing."""

    limit: Limit = LIMIT_DEFAULT
    after: After = ""


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One page. `next` is the `after` of the following page, null on the last one."""

    items: Sequence[Item]
    next: str | None


def page_of(
    items: Sequence[Item], name: Callable[[Item], str], *, limit: int, after: str
) -> Page[Item]:
    """The page of items that are sorted by their names, each of which is there once."""
    first = bisect_right(items, after, key=name) if after else 0
    chosen = items[first : first + limit]
    has_more = first + limit < len(items)
    return Page(items=chosen, next=name(chosen[-1]) if has_more and chosen else None)


def format_offsets(offsets: Mapping[int, int]) -> str:
    """A cursor of the next offset of each partition: `0:15,2:7`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def parse_offsets(text: str) -> dict[int, int]:
    """Read a cursor of `format_offsets`. Raises RequestRefused."""
    found: dict[int, int] = {}
    for part in text.split(",") if text else ():
        partition, colon, offset = part.partition(":")
        if not (colon and _is_number(partition, 10) and _is_number(offset, 19)):
            raise invalid(
                f"after={text[:64]!r} is no cursor", "give `next` of the page before as it is"
            )
        found[int(partition)] = min(int(offset), OFFSET_MAX)
    return found


def _is_number(text: str, digits_max: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits_max
