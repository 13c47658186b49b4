"""The documentation site: every page is in its navigation, it builds without a warning, and needs no other server."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
NAVIGATION = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]
SECONDS_MAX = 600.0


def listed(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from listed(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from listed(value)


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    # tools/site.py adds the decisions below their list.
    expected = {page for page in pages if not re.match(r"decisions/\d", page)}
    found = list(listed(NAVIGATION))
    assert expected - set(found) == set(), "add these to nav in mkdocs.yml"
    assert set(found) - expected == set(), "mkdocs.yml names pages that do not exist"
    assert len(found) == len(set(found))


def test_start_here_and_patterns_come_first() -> None:
    assert [next(iter(section)) for section in NAVIGATION[:2]] == ["Start here", "Patterns"]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("material")
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    fetched = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\ssrc=\"?(https?:[^\"\s>]+)"
        r"|<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|preload|icon)\"?[^>]*\shref=\"?(https?:[^\"\s>]+)"
    )
    found = {match[0] for page in pages for match in fetched.finditer(page.read_text())}
    assert found == set()
    decisions = (site / "decisions" / "index.html").read_text()
    assert "0001-whole-batches-on-the-hot-path.html" in decisions
    # A link to a file that is not a page is named instead.
    assert (
        "<code>examples/patterns/outbox.py</code>"
        in (site / "patterns" / "outbox.html").read_text()
    )


def test_screenshots_are_small_and_shown() -> None:
    texts = [page.read_text() for page in [REPOSITORY / "README.md", *DOCS.glob("*.md")]]
    for file in (DOCS / "screenshots").iterdir():
        assert file.stat().st_size <= (1_500_000 if file.suffix == ".webp" else 150_000), file
        assert any(f"screenshots/{file.name})" in text for text in texts), f"{file} is not shown"
