"""The modules of the console as text: short, without markup made of texts, without anything from elsewhere."""

import re

import pytest

from zhumq.web.console_files import read_files

LINES_MAX = 400
COLUMNS_MAX = 180
FILES = read_files()
MODULES = sorted(name for name in FILES if name.endswith(".js"))
# What would make markup or a script of a text.
SINKS = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "setHTMLUnsafe",
    "DOMParser", "srcdoc", "eval(", "new Function", "setAttribute('on",
)  # fmt: skip


def text(name: str) -> str:
    return FILES[name].content.decode()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_and_says_what_it_is(name: str) -> None:
    lines = text(name).splitlines()
    assert len(lines) <= LINES_MAX
    assert lines[0].startswith(("/** ", "// "))
    assert max(map(len, lines)) <= COLUMNS_MAX


@pytest.mark.parametrize("name", MODULES)
def test_a_module_makes_no_markup_of_texts(name: str) -> None:
    assert [sink for sink in SINKS if sink in text(name)] == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_needs_nothing_from_elsewhere(name: str) -> None:
    found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text(name))
    assert [each for each in found if each != "http://www.w3.org"] == []


def test_the_index_has_no_script_or_style_of_its_own() -> None:
    index = text("index.html")
    assert re.findall(r"<script(?![^>]* src=)", index) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", index) == []
