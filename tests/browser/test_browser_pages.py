"""Every page of the console with something to see: accessible, light and dark, wide and narrow, by keys alone."""

import json
import re
import time
from collections.abc import Iterator

import confluent_kafka
import httpx
import pytest
from browser_support import accessibility_problems, cell, cut_tables, overflow, ready, row
from playwright.sync_api import Browser, Page, expect
from tests.integration.web.published_runs import RUN, write
from tests.integration.web.rest_support import create, send

import zhumq
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60.0
PAGES = {
    "/": "Overview",
    "/cluster": "Cluster",
    "/cluster/brokers/0": "Broker 0",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/messages": "orders",
    "/topics/orders/messages?partition=0&offset=0": "orders",
    "/topics/orders/groups": "orders",
    "/topics/orders/settings": "orders",
    "/topics/orders/retention": "orders",
    "/topics/orders/producers": "orders",
    "/topics/orders/scheduled": "orders",
    "/groups": "Groups",
    "/groups/billing": "billing",
    "/groups/ledger": "ledger",
    "/dead-letters": "Dead letters",
    "/dead-letters/orders.dlq": "orders.dlq",
    "/sessions": "Push sessions",
    "/transactions": "Transactions",
    "/transactions/writer": "writer",
    "/half-messages": "Half messages",
    "/producers": "Producers",
    "/schemas": "Schemas",
    "/keys?key=k": "Follow a key",
    "/users": "Users",
    "/acls": "ACLs",
    "/quotas": "Quotas",
    "/audit": "Audit log",
    "/pipelines": "Pipelines",
    "/pipelines/inspect-shop": "inspect-shop",
    "/tail?topics=orders": "Live tail",
    "/topics/none": "none",
    "/topics/orders/nothing": "No such page",
}
SCREENS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"authorizer.class.name": "zhumq", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def busy(running: RunningBroker, url: str) -> Iterator[None]:
    """Something for every page."""
    with httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as api:
        create(api, "orders", partitions=2, settings={"delay.enable": "true"})
        send(api, "orders", {"json": {"total": 1}}, "text", {"base64": "AP8="}, key="k")
        later = [{"name": "zhumq-delay-ms", "value": "3600000"}]
        send(api, "orders", "later", headers=later)
        api.post("/groups/billing/reset", json={"topic": "orders", "to": "earliest"})
        api.post("/users", json={"user": "alice", "password": "x"}).raise_for_status()
        acl = {"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:alice"}
        api.post("/acls", json={"acls": [{**acl, "operation": "READ"}]}).raise_for_status()
        quota = {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1e6}}
        api.patch("/quotas", json=quota).raise_for_status()
    write(running.bootstrap, "inspect-shop", json.dumps(RUN).encode())
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": "writer", "log_level": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(SECONDS_MAX)
    with (
        zhumq.HalfMessageProducer(running.bootstrap, group="shop", check=None) as halves,
        zhumq.Consumer(
            "orders", group="ledger", mode="ptp", bootstrap=running.bootstrap, auto_ack=False
        ) as consumer,
    ):
        halves.prepare("orders", "half", key="k")
        deadline = time.monotonic() + SECONDS_MAX
        while not (found := consumer.poll(1.0)):
            assert time.monotonic() < deadline
        found[0].reject("bad")
        yield


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    "screen",
    [pytest.param(each, marks=[] if each == "dark" else [pytest.mark.long]) for each in SCREENS],
)
def test_every_page_is_accessible(browser: Browser, url: str, screen: str) -> None:
    found = {}
    context = browser.new_context(base_url=url, **SCREENS[screen])
    context.set_default_timeout(SECONDS_MAX * 1000)
    page = context.new_page()
    for path, title in PAGES.items():
        page.goto(path)
        ready(page)
        expect(page.locator("main h1")).to_have_text(title)
        problems = accessibility_problems(page)
        if wide := overflow(page):
            problems.append(f"{wide} pixels wider than the screen")
        problems += [f"columns of {table!r} are not seen" for table in cut_tables(page)]
        if problems:
            found[path] = problems
    context.close()
    assert found == {}


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
def test_every_dialog_is_accessible(page: Page) -> None:
    dialogs = [
        ("/topics", "Create topic"),
        ("/topics/orders", "Add partitions"),
        ("/topics/orders", "Delete topic"),
        ("/topics/orders", "Delete messages"),
        ("/topics/orders/messages", "Send a message"),
        ("/topics/orders/settings", "Change retention.ms"),
        ("/topics/orders/scheduled", "Cancel many"),
        ("/groups/billing", "Reset offsets"),
        ("/groups/billing", "Delete"),
        ("/dead-letters/orders.dlq", "Replay all"),
        ("/users", "Create user"),
        ("/acls", "Create ACL"),
        ("/quotas", "Set a quota"),
    ]
    for path, name in dialogs:
        page.goto(path)
        ready(page)
        opener = page.get_by_role("button", name=name, exact=True)
        opener.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert accessibility_problems(page) == []
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
        expect(opener).to_be_focused()


def test_a_single_broker_says_what_is_not_possible(page: Page) -> None:
    page.goto("/cluster")
    ready(page)
    expect(page.get_by_text("This is a single broker. Replicas cannot move")).to_be_visible()
    expect(page.get_by_role("button", name="Rebalance")).to_be_disabled()
    expect(page.get_by_role("button", name="Drain broker 0")).to_have_count(0)
    expect(page.get_by_role("heading", name="Replicas that move")).to_be_hidden()


@pytest.mark.usefixtures("busy")
def test_a_pipeline_is_shown_with_its_sinks_and_findings(page: Page) -> None:
    page.goto("/pipelines")
    ready(page)
    line = row(page, "inspect-shop")
    expect(cell(line, "State")).to_have_text("done")
    expect(cell(line, "Behind")).to_have_text("250")
    expect(cell(line, "Bad rows")).to_have_text("37")
    line.get_by_role("link", name="inspect-shop").click()
    ready(page)
    expect(cell(row(page, "counts"), "Rows in")).to_have_text("120,000")
    expect(page.get_by_role("link", name="shop-alerts")).to_be_visible()
    chart = page.locator("figure.bars")
    expect(chart).to_contain_text("Errors per 1 min")
    expect(chart.locator("rect.bar-0")).to_have_count(
        8
    )  # seven minutes with errors, and the legend
    expect(chart.get_by_role("listitem").first).to_have_text("checkout 149")
    expect(cell(row(page, "no answer of payments within 3 s"), "For")).to_have_text("2 minutes")


@pytest.mark.usefixtures("busy")
def test_the_audit_log_is_filtered_and_live(page: Page, api: httpx.Client) -> None:
    page.goto("/audit?resource=topic%3Aorders")
    ready(page)
    expect(cell(row(page, "CREATE"), "Result")).to_have_text("allowed")
    page.get_by_label("Result").select_option("denied")
    expect(page.get_by_text("No such lines.")).to_be_visible()
    assert page.url.endswith("/audit?resource=topic%3Aorders&result=denied")
    page.get_by_label("Result").select_option("")
    page.get_by_label("Resource").fill("topic:live")
    page.get_by_label("Resource").press("Enter")
    live = page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_attribute("aria-pressed", "true")
    create(api, "live-1")
    expect(cell(row(page, "topic:live-1"), "Who")).to_have_text("User:ANONYMOUS")


@pytest.mark.usefixtures("busy")
def test_the_console_is_used_by_keys_alone(page: Page) -> None:
    page.goto("/")
    ready(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").focus()
    page.keyboard.press("Enter")
    # A new page begins at its heading.
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_focused()
    assert page.title() == "Topics · zhumq"
    page.get_by_label("Search").focus()
    page.keyboard.type("orders")
    expect(page).to_have_url(re.compile("search=orders"))
    expect(page.get_by_label("Search")).to_be_focused()
    page.get_by_role("link", name="orders", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders", exact=True)).to_be_focused()
    page.get_by_role("link", name="Messages", exact=True).focus()
    page.keyboard.press("Enter")
    ready(page)
    first = page.locator(".messages .line").first
    first.focus()
    page.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Space")
    expect(first).to_have_attribute("aria-expanded", "false")


@pytest.mark.usefixtures("busy")
def test_the_menu_of_a_narrow_screen_opens_and_closes(browser: Browser, url: str) -> None:
    context = browser.new_context(base_url=url, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto("/")
    ready(page)
    link = page.get_by_role("link", name="Groups", exact=True)
    expect(link).to_be_hidden()
    menu = page.get_by_role("button", name="Menu")
    menu.click()
    link.press("Escape")
    expect(link).to_be_hidden()
    expect(menu).to_be_focused()
    menu.click()
    link.click()
    expect(page.get_by_role("heading", name="Groups", exact=True)).to_be_visible()
    expect(link).to_be_hidden()
    context.close()


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/quotas")
    ready(page)

    def background() -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    page.get_by_label("Theme").select_option("light")
    assert background() == light
    page.reload()
    ready(page)
    assert background() == light
    page.get_by_label("Theme").select_option("system")
    assert background() == dark


@pytest.mark.usefixtures("busy")
def test_what_has_not_changed_stays_in_place(page: Page, api: httpx.Client) -> None:
    """No flicker: the rows of a topic are the same elements after its offsets have changed."""
    page.goto("/topics/orders")
    ready(page)
    page.evaluate("document.querySelector('tbody tr').mark = 'the same'")
    line = page.locator("tbody tr").first.locator('td[data-title="Latest"]')
    before = line.inner_text()
    send(api, "orders", "one more", partition=0)
    expect(line).not_to_have_text(before)
    assert page.evaluate("document.querySelector('tbody tr').mark") == "the same"


def test_a_broker_shows_its_settings(page: Page) -> None:
    page.goto("/cluster")
    ready(page)
    cell(row(page, "controller"), "Broker").get_by_role("link").click()
    ready(page)
    expect(page.get_by_role("heading", name="Broker 0")).to_be_visible()
    page.get_by_label("Search").fill("log.retention.ms")
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(cell(row(page, "log.retention.ms"), "Comes from")).to_have_text("default")
    page.get_by_label("Search").fill("")
    page.get_by_label("Only those without the default").check()
    # What the broker of this test was started with.
    expect(cell(row(page, "super.users"), "Value")).to_have_text("User:ANONYMOUS")


def test_an_address_without_a_page_says_so(page: Page) -> None:
    page.goto("/nothing")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.locator("main").get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


@pytest.mark.thorough
def test_a_hidden_page_asks_nothing(page: Page) -> None:
    page.goto("/")
    ready(page)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
    page.wait_for_load_state("load")
    page.evaluate(hide % "true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(7_000)  # longer than the interval of the overview
    assert asked == []
    with page.expect_request("**/api/v1/cluster"):
        page.evaluate(hide % "false")
