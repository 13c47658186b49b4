"""Moves of replicas over REST: proposed, started, followed, cancelled; a broker that is drained; a mode that changes."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from zhumq.testing.cluster import ClusterProcesses, wait_for
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

pytestmark = pytest.mark.slow

WAIT_SECONDS = 90.0
PARTITIONS = 4
VALUE = "x" * 100_000
READS = 5


@pytest.fixture
def api(cluster: ClusterProcesses) -> Iterator[httpx.Client]:
    with (
        rest_api(WebConfig(bootstrap=cluster.bootstrap)) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=WAIT_SECONDS) as client,
    ):
        yield client
        client.put("/cluster/copy-rate", json={"bytes_per_second": None})


def create(api: httpx.Client, topic: str, replicas: int, **settings: str) -> None:
    body = {
        "topic": topic,
        "partitions": PARTITIONS,
        "replicas": replicas,
        "settings": {"min.insync.replicas": "1", **settings},
    }
    made = api.post("/topics", json=body)
    assert made.status_code == 201, made.text
    wait_until_in_sync(api)


def wait_until_in_sync(api: httpx.Client) -> None:
    def is_well() -> bool | None:
        return api.get("/cluster").json()["underreplicated"] == 0 or None

    wait_for(is_well, "all replicas in sync", WAIT_SECONDS)


def fill(api: httpx.Client, topic: str, count: int) -> None:
    body = {
        "messages": [
            {"value": VALUE, "partition": number % PARTITIONS}
            for number in range(count * PARTITIONS)
        ]
    }
    assert api.post(f"/topics/{topic}/messages", json=body).status_code == 201


def post(api: httpx.Client, path: str, body: object) -> Any:
    answer = api.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def targets(proposal: Any) -> dict[str, Any]:
    return {
        "moves": [
            {"topic": each["topic"], "partition": each["partition"], "replicas": each["after"]}
            for each in proposal["moves"]
        ]
    }


def replicas_of(api: httpx.Client, topic: str) -> list[set[int]]:
    """The replicas of each partition; none while a leader changes."""
    answer = api.get(f"/topics/{topic}")
    return [set(each["replicas"]) for each in answer.json().get("partitions", ())]


def moves_of(api: httpx.Client, topic: str) -> list[Any]:
    items = api.get("/cluster/reassignments").json()["items"]
    return [each for each in items if each["topic"] == topic]


@pytest.mark.parametrize("mode", ["raft", "fetch"])
def test_a_topic_moves_as_proposed(api: httpx.Client, mode: str) -> None:
    topic = f"moved-{mode}"
    create(api, topic, 2, **{"replication.mode": mode})
    fill(api, topic, 2)
    asked = {"topic": topic, "brokers": [1, 2], "replicas": 1}
    proposal = post(api, "/cluster/reassignments/plan", asked)
    assert proposal["left_out"] == 0
    assert all(len(each["after"]) == 1 for each in proposal["moves"])
    assert replicas_of(api, topic) == [set(each["before"]) for each in proposal["moves"]]
    started = post(api, "/cluster/reassignments", targets(proposal))
    assert started == {"started": len(proposal["moves"])}
    expected = [set(each["after"]) for each in proposal["moves"]]
    wait_for(
        lambda: replicas_of(api, topic) == expected or None, "the replicas moved", WAIT_SECONDS
    )
    wait_for(lambda: not moves_of(api, topic) or None, "no moves any more", WAIT_SECONDS)

    def read() -> int:
        answer = api.get(f"/topics/{topic}/messages", params={"value_bytes": 1})
        return len(answer.json().get("items", ()))

    wait_for(lambda: read() == 2 * PARTITIONS or None, "every message", WAIT_SECONDS)


def test_a_slow_move_is_followed_and_cancelled(api: httpx.Client) -> None:
    topic = "slow"
    create(api, topic, 1, **{"replication.mode": "fetch"})
    # More than a follower reads at once: what it has read is counted afterwards.
    for _ in range(READS):
        fill(api, topic, 10)
    before = replicas_of(api, topic)
    limited = api.put("/cluster/copy-rate", json={"bytes_per_second": 10_000})
    assert limited.status_code == 204
    asked = {"topic": topic, "replicas": 3}
    proposal = post(api, "/cluster/reassignments/plan", asked)
    assert proposal["copied_bytes"] > 2 * READS * 10 * PARTITIONS * len(VALUE)
    post(api, "/cluster/reassignments", targets(proposal))

    def under_way() -> list[Any] | None:
        found = moves_of(api, topic)
        # The leader knows how much there is, and the new replicas have a part of it at most.
        is_known = all(each["left_bytes"] for each in found)
        return found if len(found) == PARTITIONS and is_known else None

    proposed = {each["partition"]: set(each["after"]) for each in proposal["moves"]}
    for each in wait_for(under_way, "moves with bytes left", WAIT_SECONDS):
        assert 0 < each["left_bytes"] <= 2 * each["size_bytes"]
        assert len(each["adding"]) == 2
        assert set(each["replicas"]) == proposed[each["partition"]]
    # What moves already is in no other proposal.
    again = post(api, "/cluster/reassignments/plan", asked)
    assert again["moves"] == []
    names = [{"topic": topic, "partition": number} for number in range(PARTITIONS)]
    cancelled = post(api, "/cluster/reassignments/cancel", {"partitions": names})
    assert cancelled == {"cancelled": PARTITIONS}
    wait_for(lambda: not moves_of(api, topic) or None, "no moves any more", WAIT_SECONDS)
    # Of the cancellation, the broker that is asked now may hear after the one that was asked before.
    wait_for(lambda: replicas_of(api, topic) == before or None, "replicas as before", WAIT_SECONDS)


def test_a_broker_is_drained(cluster: ClusterProcesses, api: httpx.Client) -> None:
    create(api, "kept", 2)
    create(api, "everywhere", 3)
    too_many = api.post("/cluster/reassignments/plan", json={"drain": 3})
    assert too_many.status_code == 422, too_many.text
    if 4 not in cluster.brokers:
        cluster.add(4).start()
    cluster.wait_for_brokers({1, 2, 3, 4})

    def has() -> int:
        brokers = api.get("/cluster/brokers").json()
        count: int = next(each["replicas"] for each in brokers if each["broker"] == 3)
        return count

    assert has() > 0
    proposal = post(api, "/cluster/reassignments/plan", {"drain": 3})
    assert all(3 in each["before"] and 3 not in each["after"] for each in proposal["moves"])
    shares = {each["broker"]: each for each in proposal["brokers"]}
    assert (shares[3]["before"], shares[3]["after"]) == (has(), 0)
    post(api, "/cluster/reassignments", targets(proposal))
    wait_for(lambda: has() == 0 or None, "broker 3 is empty", WAIT_SECONDS)
    assert post(api, "/cluster/reassignments/plan", {"drain": 3})["moves"] == []


def test_the_mode_of_a_topic_changes(api: httpx.Client) -> None:
    create(api, "modes", 2, **{"replication.mode": "raft"})
    for mode in ("fetch", "raft"):
        body = {"settings": {"replication.mode": mode}}
        changed = api.patch("/topics/modes", json=body)
        assert changed.status_code == 200, changed.text

        def has_changed(mode: str = mode) -> bool | None:
            found = api.get("/topics/modes").json().get("partitions", ())
            return {each["mode"] for each in found} == {mode} or None

        wait_for(has_changed, f"every partition in {mode} mode", WAIT_SECONDS)
        wait_until_in_sync(api)
