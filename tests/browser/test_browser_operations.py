"""Dead letters, sessions, delayed and half messages, transactions, users and quotas in the console: every action."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import httpx
import pytest
from browser_support import cell, dialog, noted, ready, row
from playwright.sync_api import Page, expect
from tests.integration.web.rest_support import create, send
from tests.integration.written_transactions import prepare_two_phase

import zhumq
from zhumq import Consumer
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60.0
STALLING = Path(__file__).parents[1] / "integration" / "push" / "stalling_consumer.py"


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {
        "transaction.two.phase.commit.enable": "true",
        "push.ping.interval.ms": "200",
        "push.ping.timeout.ms": "1000",
        "push.retries.max": "1",
        "push.retry.backoff.ms": "100",
    }


def reject_all(running: RunningBroker, topic: str, count: int) -> None:
    with Consumer(
        topic, group=topic, mode="ptp", bootstrap=running.bootstrap, auto_ack=False
    ) as consumer:
        deadline = time.monotonic() + SECONDS_MAX
        while count > 0:
            assert time.monotonic() < deadline
            for message in consumer.poll(1.0):
                message.reject("total is missing")
                count -= 1


@pytest.mark.thorough
def test_a_dead_letter_is_inspected_edited_and_replayed(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    headers = [
        {"name": "h", "value": "v"},
        {"name": "bytes", "value": {"base64": "/wA="}},
        {"name": "lines", "value": "a\r\nb"},
        {"name": "none", "value": None},
    ]
    send(api, topic, "first", "second", "third", key="k\n", headers=headers)
    before = api.get(f"/topics/{topic}/messages").json()["items"][0]
    reject_all(running, topic, 3)
    page.goto("/")
    attention = page.get_by_role("listitem").filter(has_text=f"3 dead letters in {topic}.dlq")
    attention.get_by_role("link", name="Inspect").click()
    ready(page)
    expect(page.get_by_role("region", name="Reasons")).to_contain_text("total is missing")
    table = page.get_by_role("group", name=f"Dead letters of {topic}.dlq")
    line = table.locator("tbody tr").filter(has_text="second")
    line.get_by_role("button", name="Inspect").click()
    expect(dialog(page).get_by_label("Value as text")).to_have_text("second")
    expect(dialog(page)).to_contain_text("0 @ 1")
    dialog(page).get_by_role("button", name="Close").click()
    line.get_by_role("button", name="Edit").click()
    dialog(page).get_by_label("Value", exact=True).fill("second, corrected")
    dialog(page).get_by_role("button", name="Replay edited").click()
    noted(page, "1 dead letter replayed")
    expect(cell(line, "State")).to_have_text("replayed")
    again = api.get(f"/topics/{topic}/messages?from=3").json()["items"]
    assert [each["value"]["text"] for each in again] == ["second, corrected"]
    # What was not edited is as it was, also what a field of a form cannot hold.
    assert again[0]["key"] == before["key"]
    assert again[0]["headers"][:4] == before["headers"]

    table.locator("tbody tr").filter(has_text="third").get_by_role("checkbox").check()
    page.get_by_role("button", name="Replay 1 chosen").click()
    dialog(page).get_by_role("button", name="Replay").click()
    noted(page, "1 dead letter replayed")
    expect(table.locator("tbody tr").filter(has_text="third")).to_contain_text("replayed")
    expect(page.get_by_role("button", name="Replay chosen")).to_be_disabled()
    page.get_by_role("button", name="Replay all").click()
    dialog(page).get_by_role("button", name="Replay").click()
    expect(table.get_by_text("left", exact=True)).to_have_count(0)
    everything = api.get(f"/topics/{topic}/messages?from=3").json()["items"]
    texts = sorted(each["value"]["text"] for each in everything)
    assert texts == ["first", "second, corrected", "third"]


@pytest.mark.thorough
def test_a_parked_session_is_seen_and_resumed(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "1")
    command = [sys.executable, str(STALLING), running.push, topic, topic, "ptp", "10", "5000"]
    with subprocess.Popen(
        [*command, "named"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as consumer:
        try:
            assert consumer.stdout is not None
            while not consumer.stdout.readline().startswith("ack"):
                assert consumer.poll() is None
            consumer.send_signal(signal.SIGSTOP)
            send(api, topic, "2")
            page.goto(f"/sessions?group={topic}")
            ready(page)
            line = row(page, topic)
            expect(cell(line, "State")).to_contain_text("parked", timeout=SECONDS_MAX * 1000)
            consumer.send_signal(signal.SIGCONT)
            line.get_by_role("button", name="Resume").click()
            dialog(page).get_by_role("button", name="Resume").click()
            noted(page, "is resumed")
            expect(cell(line, "State")).not_to_contain_text("parked")
        finally:
            consumer.send_signal(signal.SIGCONT)
            consumer.kill()


def test_delayed_messages_are_cancelled(page: Page, api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1, settings={"delay.enable": "true"})
    due_ms = (int(time.time()) + 3_600) * 1_000
    for number in range(3):
        headers = [{"name": "zhumq-deliver-at", "value": str(due_ms + number * 60_000)}]
        send(api, topic, str(number), headers=headers)
    page.goto(f"/topics/{topic}/scheduled")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("tbody tr").first.get_by_role("button", name="Cancel").click()
    dialog(page).get_by_role("button", name="Cancel the message").click()
    noted(page, "The message is cancelled")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Cancel many").click()
    for label, at in (("Due from", due_ms), ("Due before", due_ms + 3_600_000)):
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at / 1000))
        dialog(page).get_by_label(label).fill(text)
    dialog(page).get_by_label("Type").fill(topic)
    dialog(page).get_by_role("button", name="Cancel the messages").click()
    noted(page, "2 messages cancelled")
    expect(page.locator("tbody tr")).to_have_count(0)


def test_half_messages_are_committed_and_rolled_back(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    with zhumq.HalfMessageProducer(running.bootstrap, group=topic, check=None) as producer:
        kept, dropped = (producer.prepare(topic, text, key="k") for text in ("keep", "drop"))
        page.goto(f"/half-messages?group={topic}")
        ready(page)
        page.get_by_role("button", name=f"Show {kept.id}").click()
        expect(dialog(page).get_by_label("Value as text")).to_have_text("keep")
        dialog(page).get_by_role("button", name="Commit").click()
        noted(page, "is committed")
        page.get_by_role("button", name=f"Show {dropped.id}").click()
        dialog(page).get_by_role("button", name="Roll back").click()
        dialog(page).get_by_role("button", name="Roll back").click()
        noted(page, "is rolled back")
    deadline = time.monotonic() + SECONDS_MAX
    while not (items := api.get(f"/topics/{topic}/messages").json()["items"]):
        assert time.monotonic() < deadline
    assert [each["value"]["text"] for each in items] == ["keep"]


def test_transactions_are_aborted_and_committed(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    prepared = f"{topic}-prepared"
    prepare_two_phase(running.bootstrap, prepared, topic, b"prepared")
    page.goto(f"/topics/{topic}/producers")
    expect(page.get_by_role("link", name="0 @ 0")).to_be_visible()
    page.goto(f"/transactions?pattern={topic}.*")
    ready(page)
    expect(cell(row(page, prepared), "Kind")).to_have_text("two-phase")
    page.get_by_role("link", name=topic, exact=True).click()
    ready(page)
    expect(page.get_by_role("group", name="Partitions that")).to_contain_text(topic)
    page.get_by_role("button", name="Abort").click()
    dialog(page).get_by_role("button", name="Abort it").click()
    noted(page, "is aborted")
    page.goto(f"/transactions/{prepared}")
    ready(page)
    page.get_by_role("button", name="Commit").click()
    dialog(page).get_by_role("button", name="Commit").click()
    noted(page, "is committed")
    deadline = time.monotonic() + SECONDS_MAX
    while not (items := api.get(f"/topics/{topic}/messages").json()["items"]):
        assert time.monotonic() < deadline
    assert [each["value"]["text"] for each in items] == ["prepared"]
    page.goto("/transactions")
    page.get_by_role("button", name="Look for hanging transactions").click()
    expect(page.get_by_text("None: no transaction holds back consumers")).to_be_visible()


def test_users_are_created_changed_and_deleted(page: Page, api: httpx.Client) -> None:
    page.goto("/users")
    ready(page)
    page.get_by_role("button", name="Create user").click()
    dialog(page).get_by_label("User").fill("carol")
    dialog(page).get_by_label("Password").fill("wonder-1")
    dialog(page).get_by_role("button", name="Create").click()
    noted(page, "carol is created")
    expect(cell(row(page, "carol"), "Mechanisms")).to_contain_text("SCRAM-SHA-512")
    page.get_by_role("button", name="Set the password of carol").click()
    dialog(page).get_by_label("New password").fill("wonder-2")
    dialog(page).get_by_role("button", name="Set").click()
    noted(page, "password of carol is set")
    page.get_by_role("button", name="Delete carol").click()
    dialog(page).get_by_label("Type").fill("carol")
    dialog(page).get_by_role("button", name="Delete the user").click()
    noted(page, "carol is deleted")
    assert api.get("/users").json()["items"] == []


def test_quotas_are_set_and_taken_back(page: Page, api: httpx.Client) -> None:
    page.goto("/quotas")
    ready(page)
    page.get_by_role("button", name="Set a quota").click()
    dialog(page).get_by_label("Name").fill("carol")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("at least one")
    dialog(page).get_by_label("may write").fill("1048576")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    noted(page, "quotas are set")
    expect(cell(row(page, "user carol"), "Writes")).to_have_text("1.0 MiB/s")
    page.get_by_role("button", name="Change the quotas of user carol").click()
    dialog(page).get_by_label("may write").fill("")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("There are no quotas")).to_be_visible()
    assert api.get("/quotas").json() == []
