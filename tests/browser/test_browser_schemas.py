"""Schemas in the console: registered after a check, looked at, deleted; messages decoded; a key through topics."""

import base64
import importlib.util
import io
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fastavro
import httpx
import pytest
from browser_support import accessibility_problems, cell, dialog, noted, overflow, ready, row
from playwright.sync_api import Browser, Page, expect
from tests.integration.web.rest_support import create, send

from zhumq import Consumer
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60.0
HOSTILE = "<img src=x onerror=window.__reached=1>"


def order(*fields: dict[str, Any]) -> str:
    first = {"name": "id", "type": "string"}
    return json.dumps({"type": "record", "name": "Order", "fields": [first, *fields]})


@pytest.fixture
def registry(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/registry", timeout=SECONDS_MAX) as client:
        yield client


def register(registry: httpx.Client, subject: str, schema: str, **fields: Any) -> int:
    body = {"schema": schema, **fields}
    answer = registry.post(f"/subjects/{subject}/versions", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


@pytest.mark.thorough
def test_a_schema_is_registered_checked_and_deleted(
    page: Page, registry: httpx.Client, topic: str
) -> None:
    subject = f"{topic}-value"
    page.goto("/schemas")
    ready(page)
    page.get_by_role("button", name="Register a schema").click()
    form = dialog(page)
    form.get_by_label("Subject").fill(subject)
    form.get_by_label("Schema", exact=True).fill("{")
    form.get_by_role("button", name="Check").click()
    expect(form.locator("[aria-live]")).to_contain_text("no JSON")
    form.get_by_label("Schema", exact=True).fill(order())
    expect(form.locator("[aria-live]")).to_contain_text("It can be the next version.")
    form.get_by_role("button", name="Register").click()
    noted(page, "Registered: version 1")
    expect(page).to_have_url(re.compile(f"/schemas/{subject}$"))
    ready(page)
    expect(page.get_by_label("Schema of version 1")).to_contain_text('"name": "Order"')

    # What would break is shown before anything is registered, and again if one tries.
    page.get_by_role("button", name="Register a new version").click()
    breaking = order({"name": "total", "type": "int"})
    form.get_by_label("Schema", exact=True).fill(breaking)
    expect(form.locator(".verdict li")).to_contain_text("total")
    form.get_by_role("button", name="Register").click()
    expect(form.get_by_role("alert")).to_contain_text("not registered")
    assert registry.get(f"/subjects/{subject}/versions").json() == [1]
    assert accessibility_problems(page) == []
    form.get_by_label("Schema", exact=True).fill(
        order({"name": "total", "type": "int", "default": 0})
    )
    expect(form.locator("[aria-live]")).to_contain_text("It can be the next version.")
    form.get_by_role("button", name="Register").click()
    noted(page, "Registered: version 2")
    expect(page.get_by_label("Schema of version 2")).to_contain_text('"default": 0')
    page.get_by_role("button", name="Version 1", exact=True).click()
    expect(page).to_have_url(re.compile(r"version=1"))
    expect(page.get_by_label("Schema of version 1")).not_to_contain_text("default")

    page.get_by_role("button", name="Change compatibility").click()
    form.get_by_label("Compatibility").select_option("NONE")
    form.get_by_role("button", name="Set").click()
    noted(page, "compatibility is set")
    expect(page.locator("main .facts")).to_contain_text("NONE")

    page.get_by_role("button", name="Delete version 1").click()
    form.get_by_label("Type").fill(subject)
    form.get_by_role("button", name="Delete the version").click()
    noted(page, "Version 1 is deleted")
    expect(cell(row(page, "Version 1"), "State")).to_have_text("deleted")
    page.get_by_role("button", name="Delete", exact=True).click()
    submit = form.get_by_role("button", name="Delete the subject")
    expect(submit).to_be_disabled()
    form.get_by_label("Type").fill(subject)
    submit.click()
    noted(page, "is deleted")
    page.get_by_role("button", name="Delete for good").click()
    form.get_by_label("Type").fill(subject)
    form.get_by_role("button", name="Delete for good").click()
    noted(page, "deleted for good")
    expect(page).to_have_url(re.compile("/schemas$"))
    assert registry.get("/subjects?deleted=true").json().count(subject) == 0


def test_references_lead_to_each_other(page: Page, registry: httpx.Client, topic: str) -> None:
    used, user = f"{topic}-money", f"{topic}-order"
    register(registry, used, '{"type": "record", "name": "Money", "fields": []}')
    reference = {"name": "Money", "subject": used, "version": 1}
    register(registry, user, order({"name": "price", "type": "Money"}), references=[reference])
    page.goto(f"/schemas?search={topic}")
    ready(page)
    page.get_by_role("link", name=user).click()
    ready(page)
    page.get_by_role("link", name=f"{used} version 1").click()
    expect(page.get_by_role("heading", name=used)).to_be_visible()
    expect(cell(row(page, "Version 1"), "Referred to by")).to_have_text(f"{user} version 1")
    page.get_by_role("button", name="Delete", exact=True).click()
    form = dialog(page)
    form.get_by_label("Type").fill(used)
    form.get_by_role("button", name="Delete the subject").click()
    # Another schema uses it: the registry refuses, and the dialog says so.
    expect(form.get_by_role("alert")).to_contain_text("Other schemas refer to version 1")


def test_messages_are_shown_decoded_with_their_schema(
    page: Page, api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    schema = order({"name": "cents", "type": "long"})
    id_ = register(registry, f"{topic}-value", schema)
    data = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(schema))
    fastavro.schemaless_writer(data, parsed, {"id": HOSTILE, "cents": 2**60})
    content = struct.pack(">BI", 0, id_) + data.getvalue()
    for each in (content, content[:-1]):
        send(api, topic, {"base64": base64.b64encode(each).decode()}, partition=0)
    page.goto(f"/topics/{topic}/messages?partition=0&offset=0&limit=20")
    ready(page)
    lines = page.locator(".messages > li")
    expect(lines.first.locator(".line .value")).to_contain_text('"cents":1152921504606846976')
    detail = lines.first.locator(".detail")
    expect(detail.get_by_label("Value decoded")).to_have_text(
        f'{{\n  "id": "{HOSTILE}",\n  "cents": 1152921504606846976\n}}', use_inner_text=True
    )
    assert page.evaluate("window.__reached === undefined")
    views = detail.get_by_role("group", name="How the value is shown")
    views.get_by_role("button", name="Hex").click()
    expect(detail.get_by_label("Value in hexadecimal")).to_contain_text("00 00 00 00")
    lines.nth(1).locator(".line").click()
    expect(lines.nth(1).locator(".detail")).to_contain_text("It is not decoded: the Avro data")
    detail.get_by_role("link", name=f"{topic}-value version 1").click()
    expect(page.get_by_role("heading", name=f"{topic}-value")).to_be_visible()


def test_a_message_is_sent_with_the_schema_of_its_topic(
    page: Page, api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    # The brokers take no other messages.
    create(api, topic, partitions=1, settings={"schema.validation": "value"})
    register(registry, f"{topic}-value", order({"name": "cents", "type": "long"}))
    page.goto(f"/topics/{topic}/messages")
    ready(page)
    page.get_by_role("button", name="Send a message").click()
    form = dialog(page)
    expect(form.get_by_label("The value is")).to_have_value("schema")
    expect(form.get_by_label("Subject for the value")).to_have_value(f"{topic}-value")
    expect(form.get_by_label("Subject for the key")).to_be_hidden()
    form.get_by_label("Value", exact=True).fill('{"id": "o-1"}')
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("alert")).to_contain_text("/cents is missing")
    assert accessibility_problems(page) == []
    form.get_by_label("Value", exact=True).fill('{"id": "o-1", "cents": 1152921504606846977}')
    form.get_by_role("button", name="Copy as Python").click()
    expect(page.locator("#notes .note", has_text="a program")).to_be_visible()
    program = page.evaluate("navigator.clipboard.readText()")
    form.get_by_role("button", name="Send").click()
    noted(page, "partition 0, offset 0")
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    page.get_by_role("button", name="Read", exact=True).click()
    sent = '{"id":"o-1","cents":1152921504606846977}'
    expect(page.locator(".messages .value")).to_have_text([sent, sent])

    # It is written again with the version that it has, whatever is the latest by now.
    fields = ({"name": "cents", "type": "long"}, {"name": "at", "type": "int", "default": 0})
    register(registry, f"{topic}-value", order(*fields))
    page.locator(".messages .line").first.click()
    page.get_by_role("button", name="Send again").click()
    expect(form.get_by_label("Version for the value")).to_have_value("1")
    value = form.get_by_label("Value", exact=True)
    expect(value).to_have_value('{\n  "id": "o-1",\n  "cents": 1152921504606846977\n}')
    form.get_by_label("Version for the value").fill("")
    form.get_by_role("button", name="Send").click()
    noted(page, "offset 2")
    decoded = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    texts = [each["value"]["decoded"]["text"] for each in decoded]
    assert texts == [sent, sent, sent.replace("}", ',"at":0}')]


@pytest.mark.thorough
def test_a_dead_letter_is_edited_as_the_json_of_its_schema(
    page: Page, api: httpx.Client, registry: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    proto = 'syntax = "proto3"; message Other { int32 a = 1; } message Refund { int64 cents = 1; }'
    register(registry, f"{topic}-value", proto, schemaType="PROTOBUF")
    schema = {"subject": f"{topic}-value", "message": "Refund"}
    send(api, topic, {"json": {"cents": 5}, "schema": schema}, key="k")
    with Consumer(
        topic, group=topic, mode="ptp", bootstrap=running.bootstrap, auto_ack=False
    ) as consumer:
        rejected = next(iter(consumer))
        rejected.reject("too little")
    page.goto(f"/dead-letters/{topic}.dlq")
    ready(page)
    table = page.get_by_role("group", name=f"Dead letters of {topic}.dlq")
    expect(table.locator("tbody tr")).to_contain_text('{"cents":"5"}')
    page.get_by_role("button", name="Inspect").click()
    expect(dialog(page).get_by_label("Value decoded")).to_contain_text('"cents": "5"')
    dialog(page).get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Edit").click()
    expect(dialog(page).get_by_label("Message of Protobuf for the value")).to_have_value("Refund")
    dialog(page).get_by_label("Value", exact=True).fill('{"cents": "500"}')
    dialog(page).get_by_role("button", name="Replay edited").click()
    noted(page, "1 dead letter replayed")
    found = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    assert [each["value"]["decoded"]["text"] for each in found] == [
        '{"cents":"5"}',
        '{"cents":"500"}',
    ]
    assert {each["value"]["decoded"]["message"] for each in found} == {"Refund"}


@pytest.mark.thorough
def test_a_key_is_followed_through_topics(page: Page, api: httpx.Client, topic: str) -> None:
    orders, shipments = f"{topic}-orders", f"{topic}-shipments"
    for each in (orders, shipments):
        create(api, each, partitions=1, settings={"index.keys": "true"})
    key = f"customer {topic} & {HOSTILE}"
    send(api, orders, "paid", key=key, timestamp_ms=1_700_000_000_000)
    send(api, shipments, "sent", key=key, timestamp_ms=1_700_000_001_000)
    page.goto(f"/topics/{orders}/messages?partition=0&offset=0")
    ready(page)
    page.get_by_role("link", name="The same key in other topics").click()
    expect(page.get_by_role("heading", name="Follow a key")).to_be_visible()
    expect(page.locator(".messages .value")).to_have_text(["sent", "paid"])
    expect(page.locator(".messages .place").first).to_have_text(f"{shipments} 0 @ 0")
    expect(page.locator(".status")).to_contain_text("2 messages in 2 topics")
    assert page.evaluate("window.__reached === undefined")
    assert accessibility_problems(page) == []
    page.get_by_label("Key", exact=True).fill("nothing has it")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator(".status")).to_contain_text("0 messages")
    expect(page.locator("main")).to_contain_text(orders)


def test_without_the_packages_of_the_registry_the_page_says_so(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "fastavro" else find_spec(name, *rest),
    )
    page.goto("/schemas")
    ready(page)
    expect(page.locator("main .problem")).to_contain_text("without fastavro")
    expect(page.locator("main .problem")).to_contain_text("pip install 'zhumq[registry]'")


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 360])
def test_pages_of_schemas_and_keys_are_accessible(
    browser: Browser, url: str, registry: httpx.Client, width: int
) -> None:
    register(registry, "seen-value", order())
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": 800}, color_scheme="dark"
    )
    page = context.new_page()
    for path in ("/schemas", "/schemas/seen-value", "/schemas/none", "/keys?key=k", "/producers"):
        page.goto(path)
        ready(page)
        assert accessibility_problems(page) == []
        assert overflow(page) == 0
    context.close()
