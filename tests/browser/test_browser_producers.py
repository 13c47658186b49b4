"""Producers of the whole cluster: who writes what, which kind they are, and the transactions that they have open."""

import re

import confluent_kafka
import httpx
import pytest
from browser_support import cell, ready, row
from playwright.sync_api import Page, expect
from tests.integration.web.rest_support import create

from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60.0


def writing(running: RunningBroker, topic: str, **settings: object) -> confluent_kafka.Producer:
    """A producer that has written to both partitions of a topic, and is not closed."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    if "transactional_id" in settings:
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
    for partition in (0, 1):
        for _ in range(10):
            producer.produce(topic, b"x" * 100, partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


@pytest.mark.thorough
def test_producers_of_every_kind_are_shown_with_their_transactions(
    page: Page, api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=2)
    hostile = "<img src=x onerror=alert(1)>"
    plain = writing(running, topic, client_id=hostile, enable_idempotence=False)
    idempotent = writing(running, topic, client_id="shop-front", enable_idempotence=True)
    open_ = writing(running, topic, client_id="ledger", transactional_id=f"tx-{topic}")
    page.goto(f"/producers?topic={topic}")
    ready(page)
    producers = page.get_by_role("group", name="Producers").locator("tbody tr")
    expect(producers).to_have_count(3)
    line = row(page, hostile)
    expect(cell(line, "Kind")).to_have_text("plain")
    # Both partitions are added up.
    expect(cell(line, "Partitions")).to_have_text("0, 1")
    expect(cell(line, "Messages")).to_have_text("20")
    expect(cell(row(page, "shop-front"), "Kind")).to_contain_text(re.compile(r"idempotent.*id \d"))
    transaction = cell(row(page, "ledger"), "Transaction")
    expect(transaction).to_contain_text(re.compile(r"Ongoing ?for \d"))
    open_list = page.get_by_role("group", name="Open transactions").locator("tbody tr")
    expect(open_list.filter(has_text=f"tx-{topic}")).to_contain_text("ledger")
    page.get_by_label("Kind").select_option("transactional")
    expect(producers).to_have_count(1)
    expect(page).to_have_url(re.compile("kind=transactional"))
    transaction.get_by_role("link").click()
    expect(page.get_by_role("heading", name=f"tx-{topic}")).to_be_visible()
    expect(page).to_have_url(re.compile(f"/transactions/tx-{topic}"))
    page.go_back()
    ready(page)
    cell(row(page, "ledger"), "Topic").get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/topics/{topic}$"))
    page.goto(f"/producers?client=SHOP-f&topic={topic}")
    ready(page)
    expect(producers).to_have_count(1)
    open_.commit_transaction(SECONDS_MAX)
    expect(open_list.filter(has_text=f"tx-{topic}")).to_have_count(0)
    del plain, idempotent
