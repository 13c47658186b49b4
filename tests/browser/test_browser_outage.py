"""The broker is killed and restarted under an open page, which says so and recovers by itself."""

import re
from collections.abc import Iterator

import httpx
import pytest
from browser_support import cell, ready, row
from playwright.sync_api import Page, expect
from tests.integration.web.rest_support import create, send

from zhumq.testing.process import BrokerProcess, broker_process
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

NOTICED_MS_MAX = 60_000
GONE = re.compile(r"The broker does not answer since \d\d:\d\d:\d\d; trying again")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("outage") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def url(process: BrokerProcess) -> Iterator[str]:
    with rest_api(WebConfig(bootstrap=process.bootstrap, event_seconds=0.3)) as address:
        yield address


@pytest.mark.thorough
def test_a_page_outlives_its_broker(
    page: Page, api: httpx.Client, process: BrokerProcess, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "1", "2")
    page.goto(f"/topics/{topic}")
    ready(page)
    latest = cell(row(page, "broker"), "Latest")
    expect(latest).to_have_text("2")
    process.kill()
    bar = page.locator("#connection")
    expect(bar).to_have_text(GONE, timeout=NOTICED_MS_MAX)
    # What was known stays on the page.
    expect(latest).to_have_text("2")
    process.start()
    expect(bar).to_be_empty(timeout=NOTICED_MS_MAX)
    expect(page.locator("#notes")).to_contain_text("The broker answers again.")
    send(api, topic, "3")
    expect(latest).to_have_text("3", timeout=NOTICED_MS_MAX)


def test_a_page_that_is_opened_without_a_broker_waits_for_it(
    page: Page, process: BrokerProcess
) -> None:
    process.kill()
    page.goto("/topics")
    expect(page.locator("#connection")).to_have_text(GONE, timeout=NOTICED_MS_MAX)
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    process.start()
    expect(page.locator("#connection")).to_be_empty(timeout=NOTICED_MS_MAX)
    ready(page)


@pytest.mark.thorough
def test_the_live_tail_goes_on_after_a_restart(
    page: Page, api: httpx.Client, process: BrokerProcess, topic: str
) -> None:
    create(api, topic, partitions=1)
    page.goto(f"/topics/{topic}/messages?live=true")
    expect(page.locator(".status")).to_contain_text("Live")
    send(api, topic, "before")
    expect(page.locator(".messages .value")).to_have_text(["before"])
    process.kill()
    process.start()
    send(api, topic, "after")
    expect(page.locator(".messages .value")).to_have_text(
        ["after", "before"], timeout=NOTICED_MS_MAX
    )
