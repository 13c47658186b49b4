"""Headless Chromium before a live broker and its console. Without Chromium these tests are skipped."""

import shutil
from collections.abc import Iterator

import httpx
import pytest

from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'zhumq[dev]'"
)

Browser = playwright_api.Browser
BrowserContext = playwright_api.BrowserContext
Page = playwright_api.Page

SECONDS_MAX = 60.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTH, HEIGHT = 1280, 900
# Playwright waits for a fact, and five seconds are few on a machine that does other things, too.
playwright_api.expect.set_options(timeout=SECONDS_MAX * 1000 / 2)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium, or make chromium")
    with playwright_api.sync_playwright() as playwright:
        # Without a sandbox: tests may run as root, in a container.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """Settings of the broker; a module may have its own."""
    return {}


@pytest.fixture(scope="module")
def running(settings: dict[str, str]) -> Iterator[RunningBroker]:
    with broker(settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def url(running: RunningBroker) -> Iterator[str]:
    with rest_api(WebConfig(bootstrap=running.bootstrap, event_seconds=0.3)) as address:
        yield address


@pytest.fixture
def api(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as client:
        yield client


@pytest.fixture
def context(browser: Browser, url: str) -> Iterator[BrowserContext]:
    made = browser.new_context(
        base_url=url,
        viewport={"width": WIDTH, "height": HEIGHT},
        permissions=["clipboard-read", "clipboard-write"],
    )
    made.set_default_timeout(SECONDS_MAX * 1000 / 2)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that must not fail: neither a script, nor the policy against scripts of others."""
    opened = context.new_page()
    failures: list[str] = []
    opened.on("pageerror", lambda error: failures.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            failures.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    yield opened
    assert failures == []


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name)):x}"
