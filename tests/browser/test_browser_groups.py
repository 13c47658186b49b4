"""Groups in the console: lag that falls, members, a reset with its preview, the settings of share groups."""

import re
import time

import confluent_kafka
import httpx
from browser_support import cell, dialog, noted, ready, row
from playwright.sync_api import Page, expect
from tests.integration.web.rest_support import create, problem, send

from zhumq import Consumer
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60.0


def test_the_lag_of_a_group_is_seen_falling(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, *(str(number) for number in range(30)))
    api.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "earliest"}).raise_for_status()
    page.goto(f"/groups?search={topic}")
    ready(page)
    line = row(page, topic)
    expect(cell(line, "Lag")).to_have_text("30")
    expect(cell(line, "Note")).to_contain_text("no consumer")
    page.get_by_role("link", name=topic, exact=True).click()
    ready(page)
    offsets = page.get_by_role("group", name=f"Offsets of {topic}").locator("tbody tr").first
    expect(cell(offsets, "Lag")).to_have_text("30")
    expect(cell(offsets, "Progress")).to_have_text("no consumer")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": topic,
            "client.id": "reader-1",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + SECONDS_MAX
    while seen < 20:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen += 1
            consumer.commit(message, asynchronous=False)
    members = page.get_by_role("group", name=f"Members of {topic}")
    expect(members.locator("tbody tr")).to_contain_text("reader-1")
    expect(cell(offsets, "Lag")).to_have_text("10")
    expect(cell(offsets, "Read by")).to_contain_text("reader-1")
    page.get_by_role("button", name="Delete").click()
    dialog(page).get_by_label("Type").fill(topic)
    dialog(page).get_by_role("button", name="Delete the group").click()
    # It has a consumer: the broker refuses, and the dialog says so.
    expect(dialog(page).get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    consumer.close()
    expect(cell(offsets, "Progress")).to_have_text("no consumer")


def test_a_topic_shows_the_groups_that_read_it(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    for name in (topic, f"{topic}-other"):
        create(api, name, partitions=2)
        send(api, name, "1", "2", "3", partition=1)
    behind, elsewhere, reads = (f"{topic}-{each}" for each in ("behind", "elsewhere", "reads"))
    for group, read in ((behind, topic), (behind, f"{topic}-other"), (elsewhere, f"{topic}-other")):
        to = {"topic": read, "to": "earliest"}
        api.post(f"/groups/{group}/reset", json=to).raise_for_status()
    page.goto(f"/topics/{topic}/groups")
    ready(page)
    groups = page.locator('main tbody td[data-title="Group"]')
    expect(groups).to_have_text([behind])
    # The lag in the other topic is not this one's.
    expect(cell(row(page, behind), "Lag here")).to_have_text("3")
    expect(cell(row(page, behind), "Note")).to_contain_text("no consumer")
    # A group that reads, and has committed nothing.
    with Consumer(topic, group=reads, auto_ack=False, bootstrap=running.bootstrap) as consumer:
        assert next(iter(consumer)).value == b"1"
        expect(groups).to_have_text([behind, reads])
        expect(cell(row(page, reads), "Members here")).to_have_text("1")
    groups.get_by_role("link", name=behind).click()
    expect(page).to_have_url(re.compile(f"/groups/{behind}$"))


def test_a_reset_is_previewed_then_done_and_the_group_deleted(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=2)
    send(api, topic, *(str(number) for number in range(10)), partition=0)
    api.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "latest"}).raise_for_status()
    page.goto(f"/groups/{topic}")
    ready(page)
    page.get_by_role("button", name="Reset offsets").click()
    form = dialog(page)
    form.get_by_label("To", exact=True).select_option("offset")
    form.get_by_label("Offset or time").fill("4")
    form.get_by_label("Partition", exact=True).fill("0")
    form.get_by_role("button", name="Preview").click()
    expect(form.locator("tbody tr")).to_contain_text("reads 6 messages again")
    before = api.get(f"/groups/{topic}").json()["offsets"]
    assert [each["committed"] for each in before] == [10, 0]
    form.get_by_role("button", name="Reset", exact=True).click()
    noted(page, "1 offset reset")
    expect(cell(row(page, topic), "Lag")).to_have_text("6")
    page.get_by_role("button", name="Delete").click()
    dialog(page).get_by_label("Type").fill(topic)
    dialog(page).get_by_role("button", name="Delete the group").click()
    noted(page, "is deleted")
    expect(page).to_have_url(re.compile("/groups$"))
    problem(api.get(f"/groups/{topic}"), 404)


def test_a_group_forgets_a_topic(page: Page, api: httpx.Client, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        create(api, name, partitions=1)
        api.post(f"/groups/{topic}/reset", json={"topic": name, "to": "latest"}).raise_for_status()
    page.goto(f"/groups/{topic}")
    ready(page)
    expect(row(page, other)).to_be_visible()
    page.get_by_role("button", name="Forget a topic").click()
    dialog(page).get_by_label("Topic", exact=True).fill(other)
    dialog(page).get_by_role("button", name="Forget it").click()
    noted(page, f"has forgotten {other}")
    expect(row(page, other)).to_have_count(0)
    left = api.get(f"/groups/{topic}").json()["offsets"]
    assert [each["topic"] for each in left] == [topic]


def test_the_filter_of_a_share_group_is_set(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    with Consumer(topic, group=topic, mode="ptp-shared", bootstrap=running.bootstrap):
        page.goto(f"/groups/{topic}")
        ready(page)
        page.get_by_role("button", name="Change zhumq.filter").click()
        dialog(page).get_by_label("Value").fill("key = 'k-1'")
        dialog(page).get_by_role("button", name="Set").click()
        noted(page, "is set")
        expect(cell(row(page, "zhumq.filter"), "Comes from")).to_have_text("this group")
        expect(cell(row(page, "zhumq.filter"), "Value")).to_have_text("key = 'k-1'")
