"""The files of the console over HTTP: pages and modules with an ETag and a strict policy; other paths are problems."""

import re
from collections.abc import Iterator

import httpx
import pytest
from rest_support import problem

from zhumq.web.console_files import PAGES, files_path, index, read_files


@pytest.fixture(scope="module")
def site(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", *(f"/{page}" for page in PAGES), "/topics/a%2Fb/messages?partition=0&offset=17"]
)
def test_every_page_is_the_index(site: httpx.Client, path: str) -> None:
    answer = site.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.content == index().content
    assert answer.headers["cache-control"] == "private, no-cache"


def test_every_file_is_served_with_a_tag_and_a_policy(site: httpx.Client) -> None:
    files = {name: each for name, each in read_files().items() if name != "index.html"}
    assert {"style.css", "main.js", "pages/topics.js", "icon.svg"} <= files.keys()
    for name, file in files.items():
        answer = site.get(f"{files_path()}/{name}")
        assert (answer.status_code, answer.content) == (200, file.content)
        assert answer.headers["content-type"].partition(";")[0] == file.media_type
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]
        again = site.get(
            f"{files_path()}/{name}", headers={"If-None-Match": answer.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == policy


def test_every_module_that_is_imported_is_served(site: httpx.Client) -> None:
    """The modules are followed from the index, as a browser does."""
    seen: set[str] = set()
    left = re.findall(r'(?:src|href)="(/console/[^"]+)"', site.get("/").text)
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        text = site.get(path).raise_for_status().text
        for name in re.findall(r"(?:from |import\()'([^']+)'", text):
            left.append(str(httpx.URL(f"http://x{path}").join(name).path))
    assert seen == {f"{files_path()}/{name}" for name in read_files() if name != "index.html"}


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/nothing", "/console/", "/console/none.js", "/console/../app.py"]
)
def test_an_unknown_path_is_a_problem(site: httpx.Client, path: str) -> None:
    problem(site.get(path), 404)
    problem(site.get(path.replace("..", "%2e%2e")), 404)


def test_a_browser_gets_a_page_at_an_unknown_path(site: httpx.Client) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = site.get("/nothing", headers=browser)
    assert (answer.status_code, answer.content) == (404, index().content)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    for path in ("/api/v1/nothing", "/registry/nothing", "/console/none.js"):
        assert "html" not in site.get(path, headers=browser).headers["content-type"]
    problem(site.post("/nothing", headers=browser), 404)


def test_a_page_of_the_console_is_not_written_to(site: httpx.Client) -> None:
    problem(site.post("/topics", json={}), 405)
    assert site.head("/topics").status_code == 200
