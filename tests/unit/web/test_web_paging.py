"""Pages and cursors of the REST API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.web.paging import format_offsets, page_of, parse_offsets
from zhumq.web.problems import RequestRefused


@given(st.sets(st.text(min_size=1)), st.integers(1, 7))
def test_pages_have_every_item_once_in_order(names: set[str], limit: int) -> None:
    items = sorted(names)
    found: list[str] = []
    after = ""
    for _ in range(len(items) + 1):
        page = page_of(items, str, limit=limit, after=after)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            break
        after = page.next
    assert found == items


def test_a_page_goes_on_where_its_last_item_was_deleted() -> None:
    assert page_of(["a", "c", "d"], str, limit=1, after="b").items == ["c"]


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)))
def test_a_cursor_of_offsets_is_read_as_it_was_written(offsets: dict[int, int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "text", ["a", "0", "0:", ":1", "0:1,", "-1:1", "0:1;1:2", "٣:1", "0:" + "9" * 20]
)
def test_another_cursor_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused, match="is no cursor"):
        parse_offsets(text)
