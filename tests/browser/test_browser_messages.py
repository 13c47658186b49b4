"""Messages in the console: every way to find one, every way to show it, sending, copying, and the live tail."""

import csv
import io
import json
import re
import subprocess
import sys
import time

import httpx
import pytest
from browser_support import dialog, noted, ready
from playwright.sync_api import Locator, Page, expect
from tests.integration.web.rest_support import create, send

from zhumq.testing.broker import RunningBroker

BIG = "12345678901234567890123"  # more digits than a number of a browser has


def lines(page: Page) -> Locator:
    return page.locator(".messages > li")


def values(page: Page) -> Locator:
    return page.locator(".messages .value")


def test_a_message_has_an_address_and_is_shown_in_full(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=2)
    send(api, topic, *(str(number) for number in range(5)), partition=0)
    headers = [{"name": "source", "value": "shop"}, {"name": "bytes", "value": {"base64": "/w=="}}]
    value = {"text": f'{{"total":{BIG},"items":[],"a":{{"b":[1,"x,y"]}}}}'}
    send(api, topic, value, partition=0, key="customer-1", headers=headers)
    page.goto(f"/topics/{topic}/messages?partition=0&offset=5")
    ready(page)
    expect(lines(page)).to_have_count(1)
    detail = lines(page).first.locator(".detail")
    expect(detail).to_be_visible()
    expect(detail.get_by_label("Value as JSON")).to_have_text(
        f'{{\n  "total": {BIG},\n  "items": [],\n  "a": {{\n    "b": [\n      1,\n      "x,y"\n    ]\n  }}\n}}',
        use_inner_text=True,
    )
    expect(detail.get_by_label("Key as text")).to_have_text("customer-1")
    expect(detail.locator(".headers tbody tr").first).to_contain_text("shop")
    expect(detail.locator(".headers tbody tr").last).to_contain_text("ff")
    views = detail.get_by_role("group", name="How the value is shown")
    views.get_by_role("button", name="Text").click()
    expect(detail.get_by_label("Value as text")).to_have_text(value["text"])
    views.get_by_role("button", name="Hex").click()
    expect(detail.get_by_label("Value in hexadecimal")).to_contain_text("7b 22 74 6f 74 61 6c")
    detail.get_by_role("link", name="Messages with this key").click()
    expect(page).to_have_url(re.compile("filter=key"))
    expect(values(page)).to_have_count(1)


def test_messages_are_found_by_offset_time_key_tag_and_filter(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1, settings={"index.keys": "true"})
    now = int(time.time()) * 1000
    old = now - 7_200_000
    send(api, topic, {"json": {"total": 1}}, key="a", timestamp_ms=old)
    tags = [{"name": "zhumq-tags", "value": "paid"}]
    send(api, topic, {"json": {"total": 200}}, key="b", timestamp_ms=now, headers=tags)
    send(api, topic, {"json": {"total": 3}}, key="a", timestamp_ms=now)
    page.goto(f"/topics/{topic}/messages")
    ready(page)
    expect(values(page)).to_have_text(['{"total":3}', '{"total":200}', '{"total":1}'])

    def find(mode: str, label: str = "", text: str = "", filter_: str = "") -> None:
        page.get_by_label("Show", exact=True).select_option(mode)
        if label:
            page.get_by_label(label, exact=True).fill(text)
        if mode not in ("key", "tag"):
            page.get_by_label("Filter").fill(filter_)
        page.get_by_role("button", name="Read", exact=True).click()

    find("offset", "Offset", "1")
    expect(values(page)).to_have_text(['{"total":200}', '{"total":3}'])
    find("earliest", filter_="value.total > 100")
    expect(values(page)).to_have_text(['{"total":200}'])
    expect(page.locator(".status")).to_contain_text("looked at 3 messages")
    find("key", "Key", "a")
    expect(values(page)).to_have_text(['{"total":3}', '{"total":1}'])
    find("tag", "Tag", "paid")
    expect(values(page)).to_have_text(['{"total":200}'])
    half_an_hour_ago = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now / 1000 - 1800))
    find("time", "Time", half_an_hour_ago)
    expect(values(page)).to_have_text(['{"total":200}', '{"total":3}'])
    page.reload()  # The address has all of it.
    ready(page)
    expect(values(page)).to_have_text(['{"total":200}', '{"total":3}'])
    find("newest", filter_="value.total >")
    expect(page.locator("main .problem")).to_contain_text("filter is invalid")
    expect(page.get_by_label("Filter")).to_have_value("value.total >")


def test_reading_on_goes_through_a_topic(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    send(api, topic, *(str(number) for number in range(45)))
    page.goto(f"/topics/{topic}/messages?from=earliest&limit=20")
    for shown in (20, 40, 45):
        expect(lines(page)).to_have_count(shown)
        more = page.get_by_role("button", name="Read on")
        if shown < 45:
            more.click()
        else:
            expect(more).to_have_count(0)
    expect(values(page)).to_have_text([str(number) for number in range(45)])


@pytest.mark.thorough
def test_the_live_tail_shows_what_comes_and_stops(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "old")
    page.goto(f"/topics/{topic}/messages?live=true")
    expect(values(page)).to_have_text(["old"])
    send(api, topic, "new 1")
    expect(values(page)).to_have_text(["new 1", "old"])
    send(api, topic, "new 2")
    expect(values(page)).to_have_text(["new 2", "new 1", "old"])
    expect(page.locator(".status")).to_contain_text("2 new messages")
    page.get_by_role("button", name="Stop the live tail").click()
    expect(page.locator(".status")).to_contain_text("Stopped")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    send(api, topic, "new 3")
    with page.expect_response(re.compile(f"/api/v1/topics/{topic}$")):
        pass
    assert [each for each in asked if "/messages" in each] == []


def test_a_message_is_sent_and_seen(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    page.goto(f"/topics/{topic}/messages")
    ready(page)
    expect(page.locator(".status")).to_have_text("No messages.")
    page.get_by_role("button", name="Send a message").click()
    form = dialog(page)
    form.get_by_label("Key", exact=True).fill("k")
    form.get_by_label("Value", exact=True).fill("{not json")
    form.get_by_label("The value is").select_option("json")
    form.get_by_label("Headers").fill("source: docs\nempty:")
    form.get_by_label("Partition").fill("1")
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("alert")).to_contain_text("no JSON")
    form.get_by_label("Value", exact=True).fill('{"n": 12345678901234567890}')
    form.get_by_role("button", name="Send").click()
    noted(page, "partition 1, offset 0")
    (sent,) = api.get(f"/topics/{topic}/messages").json()["items"]
    assert sent["value"]["text"] == '{"n": 12345678901234567890}'
    assert (sent["key"]["text"], sent["partition"]) == ("k", 1)
    assert [(each["name"], each["value"]["text"]) for each in sent["headers"]] == [
        ("source", "docs"),
        ("empty", ""),
    ]
    page.get_by_role("button", name="Read", exact=True).click()
    expect(values(page)).to_have_text(['{"n": 12345678901234567890}'])


def test_a_copied_command_and_program_send_the_message_again(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    value = {"text": 'it\'s "quoted" $HOME `x` \\n ü'}
    headers = [{"name": "h'1", "value": {"base64": "/wA="}}]
    send(api, topic, value, key="k", headers=headers)
    page.goto(f"/topics/{topic}/messages?partition=0&offset=0")
    ready(page)
    page.get_by_role("button", name="Copy as curl").click()
    noted(page, "a command")
    command = page.evaluate("navigator.clipboard.readText()")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=60)
    page.get_by_role("button", name="Copy as Python").click()
    noted(page, "a program")
    program = page.evaluate("navigator.clipboard.readText()")
    # It has the address of the brokers that the server of the console uses.
    assert f'zhumq.Producer("{running.bootstrap}")' in program
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    first, second, third = api.get(f"/topics/{topic}/messages").json()["items"]
    for name in ("key", "value", "headers"):
        assert first[name] == second[name] == third[name]


def test_messages_that_are_shown_are_saved_as_a_file(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    page.goto(f"/topics/{topic}/messages?from=earliest")
    ready(page)
    save = page.get_by_role("button", name="Save as JSON lines")
    expect(page.locator(".status")).to_have_text("No messages.")
    save.click()
    expect(page.locator("#notes")).to_contain_text("there is nothing to save")
    send(api, topic, "first", "<b>\u202e\n", key="k")
    page.reload()
    expect(page.locator(".messages > li")).to_have_count(2)
    with page.expect_download() as saved:
        save.click()
    assert saved.value.suggested_filename == f"{topic}.jsonl"
    written = [json.loads(each) for each in saved.value.path().read_text().splitlines()]
    assert [each["offset"] for each in written] == [0, 1]
    assert [each["value"]["text"] for each in written] == ["first", "<b>\u202e\n"]
    assert {each["key"]["text"] for each in written} == {"k"}


def test_messages_are_saved_for_spreadsheets(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    send(api, topic, 'a "quoted", value\nof two lines', key="k")
    headers = [{"name": "from", "value": "é"}]
    send(api, topic, "=HYPERLINK(0)", key="-1", headers=headers)
    send(api, topic, {"base64": "/w=="})
    page.goto(f"/topics/{topic}/messages?from=earliest")
    expect(page.locator(".messages > li")).to_have_count(3)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as CSV").click()
    assert saved.value.suggested_filename == f"{topic}.csv"
    text = saved.value.path().read_bytes().decode("utf-8-sig")
    first, second, third = csv.DictReader(io.StringIO(text, newline=""))
    assert (first["topic"], first["partition"], first["offset"]) == (topic, "0", "0")
    assert (first["key"], first["value"]) == ("k", 'a "quoted", value\nof two lines')
    assert first["time"].endswith("Z")
    # A spreadsheet would run these.
    assert (second["key"], second["value"]) == ("'-1", "'=HYPERLINK(0)")
    assert json.loads(second["headers"]) == [["from", "é"]]
    assert (third["key"], third["value"]) == ("", "/w==")


def test_several_topics_are_followed_in_one_list(page: Page, api: httpx.Client, topic: str) -> None:
    topics = [topic, f"{topic}-other"]
    for each in topics:
        create(api, each, partitions=1)
    send(api, topics[0], "old")
    page.goto("/topics")
    page.get_by_role("link", name="Live tail of several").click()
    names = page.get_by_label("Topics", exact=True)
    start = page.get_by_role("button", name="Live tail")
    names.fill("a, b, c, d, e")
    start.click()
    assert "At most 4" in names.evaluate("each => each.validationMessage")
    names.fill(", ".join([*topics, topic]))
    # What is there when a topic is first read is not new.
    with page.expect_response(re.compile(f"/topics/{topics[1]}/messages")):
        start.click()
    expect(values(page)).to_have_text(["old"])
    send(api, topics[1], "new")
    expect(values(page)).to_have_text(["new", "old"])
    expect(page.locator(".messages .place").first).to_contain_text(topics[1])
    expect(page.locator(".status")).to_contain_text("1 new message of 2 topics")
    page.reload()  # The address says what is followed.
    expect(values(page)).to_have_text(["new", "old"])
    # What is asked wrongly ends what was followed, and both say so.
    names.fill(", ,")
    start.click()
    assert names.evaluate("each => each.validationMessage") == "Name a topic."
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_hidden()
    expect(page.locator(".status")).to_contain_text("Stopped")
    names.fill(topic)
    start.click()
    expect(values(page)).to_have_text(["old"])
    stop.click()
    expect(page.locator(".status")).to_contain_text("Stopped")
    names.fill(f"{topic}, no-such-topic")
    start.click()
    expect(page.locator("main .problem").first).to_contain_text("no-such-topic")
    expect(stop).to_be_hidden()


def test_a_topic_that_does_not_exist_says_so(page: Page) -> None:
    page.goto("/topics/no-such-topic/messages")
    expect(page.locator("main .problem").first).to_contain_text("no-such-topic")
