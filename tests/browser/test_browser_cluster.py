"""The page of the cluster before three brokers and before one: proposals, moves, draining, modes."""

from collections.abc import Iterator

import httpx
import pytest
from browser_support import accessibility_problems, cell, dialog, noted, overflow, ready, row
from playwright.sync_api import Page, expect

from zhumq.testing.cluster import ClusterProcesses, cluster_processes, wait_for
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

pytestmark = pytest.mark.slow

WAIT_SECONDS = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterProcesses]:
    settings = {
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
    }
    with cluster_processes(nodes=3, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def url(cluster: ClusterProcesses) -> Iterator[str]:
    with rest_api(WebConfig(bootstrap=cluster.bootstrap, event_seconds=0.3)) as address:
        yield address


def create(api: httpx.Client, topic: str, messages: int = 0, **fields: object) -> None:
    made = api.post("/topics", json={"topic": topic, "partitions": 2, "replicas": 1, **fields})
    assert made.status_code == 201, made.text
    value = "x" * 100_000
    body = {"messages": [{"value": value, "partition": number % 2} for number in range(20)]}
    for _ in range(messages // 20):
        assert api.post(f"/topics/{topic}/messages", json=body).status_code == 201


@pytest.mark.thorough
def test_replicas_of_a_topic_move_after_a_proposal(page: Page, api: httpx.Client) -> None:
    # More than a follower reads at once: what it has read is counted afterwards.
    create(api, "grown", 100, settings={"replication.mode": "fetch"})
    assert api.put("/cluster/copy-rate", json={"bytes_per_second": 10_000}).status_code == 204
    page.goto("/cluster?topic=grown")
    ready(page)
    brokers = page.get_by_role("group", name="Brokers")
    expect(brokers.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Move replicas").click()
    dialog(page).get_by_label("Replicas of each partition").fill("2")
    for number in (2, 3):
        dialog(page).get_by_label(f"Broker {number}").uncheck()
    dialog(page).get_by_role("button", name="Show the moves").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("choose more of them")
    dialog(page).get_by_label("Broker 2").check()
    dialog(page).get_by_label("Broker 3").check()
    dialog(page).get_by_role("button", name="Show the moves").click()
    expect(dialog(page).get_by_role("group", name="Proposed moves")).to_contain_text("grown")
    assert accessibility_problems(page) == []
    # Nothing has moved yet.
    assert api.get("/cluster/reassignments").json()["items"] == []
    dialog(page).get_by_role("button", name="Start 2 moves").click()
    noted(page, "2 moves started")
    moves = page.get_by_role("group", name="Replicas that move")
    expect(moves.locator("tbody tr")).to_have_count(2)
    expect(cell(moves.locator("tbody tr").first, "Progress")).to_contain_text("%")
    assert accessibility_problems(page) == []
    page.get_by_role("button", name="Cancel the move of grown 0").click()
    dialog(page).get_by_role("button", name="Cancel the move").click()
    noted(page, "1 move cancelled")
    expect(moves.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Limit the rate").click()
    dialog(page).get_by_label("MiB a second").fill("")
    dialog(page).get_by_role("button", name="Set", exact=True).click()
    noted(page, "The rate of copies is set")
    expect(page.get_by_text("Brokers copy as fast as they can")).to_be_visible()
    expect(page.get_by_text("No replicas are moving.")).to_be_visible(timeout=WAIT_SECONDS * 1000)
    replicas = [len(each["replicas"]) for each in api.get("/topics/grown").json()["partitions"]]
    assert replicas == [1, 2]


def test_a_broker_is_drained(page: Page, api: httpx.Client) -> None:
    create(api, "spread", partitions=6)
    page.goto("/cluster")
    ready(page)

    def count(broker: int) -> int:
        found = api.get("/cluster/brokers").json()
        replicas: int = next(each["replicas"] for each in found if each["broker"] == broker)
        return replicas

    wait_for(lambda: count(3) > 0 or None, "replicas on broker 3", WAIT_SECONDS)
    page.get_by_role("button", name="Drain broker 3").click()
    expect(dialog(page)).to_contain_text("After this broker 3 has no replicas")
    dialog(page).get_by_role("button", name="Start").click()
    noted(page, "started")
    line = page.get_by_role("group", name="Brokers").locator("tbody tr").nth(2)
    expect(cell(line, "Replicas")).to_have_text("0", timeout=WAIT_SECONDS * 1000)
    assert count(3) == 0
    page.get_by_role("button", name="Drain broker 3").click()
    noted(page, "Broker 3 has no replicas")


def test_the_mode_of_a_topic_is_changed(page: Page, api: httpx.Client) -> None:
    create(api, "agreeing", settings={"replication.mode": "raft"})
    page.goto("/cluster")
    ready(page)
    page.get_by_label("Topic", exact=True).fill("agreeing")
    page.get_by_label("Topic", exact=True).press("Enter")
    line = page.get_by_role("group", name="Partitions of the topic").locator("tbody tr").first
    expect(cell(line, "Mode")).to_have_text("raft")
    page.get_by_role("button", name="Change the mode").click()
    expect(dialog(page)).to_contain_text("one by one")
    dialog(page).get_by_role("button", name="Change to fetch").click()
    noted(page, "The mode of agreeing is changing")
    expect(cell(line, "Mode")).to_have_text("fetch")
    assert page.url.endswith("/cluster?topic=agreeing")


@pytest.mark.thorough
def test_the_page_fits_a_phone(page: Page, api: httpx.Client) -> None:
    create(api, "small", settings={"replication.mode": "raft"})
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("/cluster?topic=small")
    ready(page)
    expect(row(page, "raft")).to_be_visible()
    assert overflow(page) == 0
    assert accessibility_problems(page) == []
