"""Topics in the console: find, create, alter and delete them; a thousand of them."""

import re
import time

import httpx
import pytest
from browser_support import cell, dialog, noted, ready, row
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Page, expect
from tests.integration.web.rest_support import create, problem, send

from zhumq.testing.broker import RunningBroker

MANY = 1_000
SECONDS_MAX = 60.0
SHOWN_SECONDS_MAX = 5.0  # a page of a thousand topics on a machine that does other things, too


@pytest.mark.thorough
def test_a_topic_is_created_altered_and_deleted(page: Page, api: httpx.Client, topic: str) -> None:
    page.goto("/topics")
    ready(page)
    page.get_by_role("button", name="Create topic").click()
    form = dialog(page)
    form.get_by_label("Name").fill("not a name")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("alert")).to_be_visible()
    form.get_by_label("Name").fill(topic)
    form.get_by_label("Partitions").fill("2")
    form.get_by_label("Settings").fill("retention.ms=100000\nindex.keys=true")
    form.get_by_role("button", name="Create").click()
    noted(page, "is created")
    expect(page).to_have_url(re.compile(f"/topics/{topic}$"))
    ready(page)
    assert api.get(f"/topics/{topic}").json()["settings"] == {
        "index.keys": "true",
        "retention.ms": "100000",
    }
    expect(page.locator("tbody tr")).to_have_count(2)

    page.get_by_role("button", name="Add partitions").click()
    dialog(page).get_by_label("Partitions in all").fill("3")
    dialog(page).get_by_role("button", name="Add").click()
    noted(page, "has 3 partitions")
    expect(page.locator("tbody tr")).to_have_count(3)

    page.get_by_role("link", name="Settings").click()
    ready(page)
    line = page.locator('tr[data-key="retention.ms"]')
    expect(cell(line, "Comes from")).to_have_text("this topic")
    expect(cell(line, "Default")).to_have_text("259200000")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    expect(dialog(page)).to_contain_text("deleted soon")
    dialog(page).get_by_label("Value").fill("yes")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("retention.ms")
    dialog(page).get_by_label("Value").fill("200000")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    noted(page, "retention.ms is set")
    expect(cell(line, "Value")).to_contain_text("200000")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    expect(dialog(page).get_by_label("Value")).to_have_value("200000")
    dialog(page).get_by_role("button", name="Use the default").click()
    dialog(page).get_by_role("button", name="Use the default").click()
    noted(page, "is the default again")
    expect(cell(line, "Comes from")).to_have_text("default")

    send(api, topic, "one", partition=0)
    page.get_by_role("link", name="Partitions").click()
    ready(page)
    page.get_by_role("button", name="Delete topic", exact=True).click()
    delete = dialog(page).get_by_role("button", name="Delete the topic")
    expect(dialog(page)).to_contain_text("1 message in 3 partitions")
    expect(delete).to_be_disabled()
    dialog(page).get_by_label("Type").fill(topic)
    delete.click()
    noted(page, "is deleted")
    expect(page).to_have_url(re.compile("/topics$"))
    problem(api.get(f"/topics/{topic}"), 404)


def test_a_topic_that_others_create_and_delete_comes_and_goes(
    page: Page, api: httpx.Client, topic: str
) -> None:
    page.goto(f"/topics?search={topic}")
    ready(page)
    expect(page.get_by_text("No topic has this in its name.")).to_be_visible()
    create(api, topic)
    expect(page.get_by_role("link", name=topic, exact=True)).to_be_visible()
    api.delete(f"/topics/{topic}")
    expect(page.get_by_role("link", name=topic, exact=True)).to_have_count(0)


def test_messages_are_deleted_after_a_look_at_how_many(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=2)
    send(api, topic, *"abcde", partition=0)
    send(api, topic, *"fg", partition=1)
    page.goto(f"/topics/{topic}")
    ready(page)
    page.get_by_role("button", name="Delete messages").click()
    form = dialog(page)
    delete = form.get_by_role("button", name="Delete the messages")
    expect(form).to_contain_text("7 messages would be deleted")
    form.get_by_label("Delete", exact=True).select_option("offset")
    expect(form.get_by_role("alert")).to_contain_text("Give an offset")
    form.get_by_label("Offset or time").fill("3")
    form.get_by_label("Partition", exact=True).fill("0")
    expect(form).to_contain_text("3 messages would be deleted")
    expect(form.locator("tbody tr")).to_have_count(1)
    expect(delete).to_be_disabled()
    form.get_by_label("Delete", exact=True).select_option("latest")
    expect(form).to_contain_text("5 messages would be deleted")
    send(api, topic, "later", partition=0)  # What has come since it was shown stays.
    form.get_by_label("Type").fill(topic)
    delete.click()
    noted(page, "5 messages deleted")
    partitions = api.get(f"/topics/{topic}").json()["partitions"]
    assert [(each["earliest"], each["latest"]) for each in partitions] == [(5, 6), (0, 2)]
    expect(cell(page.locator("main tbody tr").first, "Messages")).to_have_text("1")


@pytest.mark.thorough
def test_the_list_has_figures_and_a_rate(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    send(api, topic, "1", "2", partition=0)
    page.goto(f"/topics?search={topic}")
    ready(page)
    line = row(page, topic)
    expect(cell(line, "Messages")).to_have_text("2")
    expect(cell(line, "Size")).to_contain_text(re.compile(r"^\d+ B$"))
    expect(cell(line, "State")).to_have_text("in sync")
    expect(cell(line, "Written/s")).to_have_text("\u2013")  # There is no rate of one reading.
    send(api, topic, "3", "4", "5", partition=1)
    expect(cell(line, "Messages")).to_have_text("5")
    expect(cell(line, "Written/s")).to_have_text(re.compile(r"^0\.\d+$"))
    cell(line, "Messages").get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/topics/{topic}/messages$"))


def test_partitions_are_sorted_by_a_column(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=3)
    send(api, topic, "1", "2", "3", partition=1)
    send(api, topic, "1", partition=2)
    page.goto(f"/topics/{topic}")
    ready(page)
    heading = page.get_by_role("columnheader", name="Messages")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    partitions = page.locator('tbody td[data-title="Partition"]')
    expect(partitions).to_have_text(["1", "2", "0"])
    heading.get_by_role("button").click()
    expect(partitions).to_have_text(["0", "2", "1"])


@pytest.mark.thorough
def test_a_thousand_topics_are_shown_quickly_and_in_pages(
    page: Page, running: RunningBroker
) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    topics = [NewTopic(f"many-{number:04}", 1, 1) for number in range(MANY)]
    for created in admin.create_topics(topics).values():
        created.result(SECONDS_MAX)
    began = time.monotonic()
    page.goto("/topics?search=many-")
    ready(page)
    expect(page.locator("tbody tr")).to_have_count(100)
    assert time.monotonic() - began < SHOWN_SECONDS_MAX
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody tr").first).to_contain_text("many-0100")
    expect(page).to_have_url(re.compile("after=many-0099"))
    page.go_back()
    expect(page.locator("tbody tr").first).to_contain_text("many-0000")
    page.get_by_label("Search").fill("many-0777")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)


def test_retention_says_when_a_segment_goes(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1, settings={"retention.ms": "86400000"})
    send(api, topic, "one")
    page.goto(f"/topics/{topic}/retention")
    ready(page)
    expect(page.locator("main")).to_contain_text("older than 1 d")
    expect(cell(row(page, "active"), "Deleted")).to_contain_text("retention.ms")
