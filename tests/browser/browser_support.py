"""What several tests of the console do in the browser."""

import re
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

# WCAG 2.2 AA, with all that it builds on.
STANDARD: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def ready(page: Page) -> None:
    """Wait until the page has a heading and has read what it shows."""
    page.locator("main h1").wait_for()
    expect(page.locator("main .waiting:visible")).to_have_count(0)
    expect(page.locator("main .status", has_text="Reading")).to_have_count(0)


def row(page: Page, *texts: str) -> Locator:
    """The row of a table that has all these texts."""
    found = page.locator("main tbody tr")
    for text in texts:
        found = found.filter(has_text=text)
    return found.first


def cell(line: Locator, title: str) -> Locator:
    """The cell of a row below a title."""
    return line.locator(f'td[data-title="{title}"]')


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def noted(page: Page, text: str) -> None:
    """Wait until the console shows this note, and no dialog is open."""
    expect(page.locator("#notes .note", has_text=re.compile(text)).first).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)


def accessibility_problems(page: Page) -> list[str]:
    """What axe finds wrong with the page as it is now, one line each."""
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": STANDARD}})
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes'][:3]]}"
        for violation in found.response["violations"]
    ]


def cut_tables(page: Page) -> list[str]:
    """The tables that are wider than their place: some of their columns are not seen."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll('main .scroller')]
            .filter((each) => each.scrollWidth > each.clientWidth + 1)
            .map((each) => each.getAttribute('aria-label'))"""
    )
    return found


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the screen."""
    width: int = page.evaluate(
        "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)"
    )
    return width
