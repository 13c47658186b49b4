"""The REST API of a cluster: what needs attention when a broker is dead, and requests that go on."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from zhumq.testing.cluster import ClusterProcesses, wait_for
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60.0
PARTITIONS = 6


@pytest.fixture
def api(cluster: ClusterProcesses) -> Iterator[httpx.Client]:
    with (
        rest_api(WebConfig(bootstrap=cluster.bootstrap)) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=WAIT_SECONDS) as client,
    ):
        yield client


@pytest.mark.thorough
def test_a_dead_broker_is_seen_and_the_others_serve(
    cluster: ClusterProcesses, api: httpx.Client
) -> None:
    made = api.post("/topics", json={"topic": "orders", "partitions": PARTITIONS, "replicas": 3})
    assert made.status_code == 201, made.text

    def healthy() -> bool:
        found = api.get("/cluster").json()
        return len(found["brokers"]) == 3 and found["underreplicated"] == 0

    wait_for(healthy, "all replicas in sync", WAIT_SECONDS)
    folders = api.get("/cluster/data-folders").json()
    assert [each["broker"] for each in folders] == [1, 2, 3]
    cluster.kill(3)

    def unwell() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get("/cluster").json()
        is_seen = len(found["brokers"]) == 2 and found["underreplicated"] >= PARTITIONS
        return found if is_seen and found["leaderless"] == 0 else None

    found = wait_for(unwell, "the dead broker is seen", WAIT_SECONDS)
    assert found["controller"] in (1, 2)
    listed, after = [], ""
    while True:
        params = {"limit": 4, "after": after, "kind": "underreplicated"}
        page = api.get("/cluster/unwell-partitions", params=params).json()
        listed += [each["partition"] for each in page["items"] if each["topic"] == "orders"]
        if page["next"] is None:
            break
        after = page["next"]
    assert listed == list(range(PARTITIONS))
    body = {
        "messages": [{"value": str(number), "partition": number} for number in range(PARTITIONS)]
    }
    assert api.post("/topics/orders/messages", json=body).status_code == 201
    messages = api.get("/topics/orders/messages").json()["items"]
    assert sorted(each["value"]["text"] for each in messages) == [
        str(each) for each in range(PARTITIONS)
    ]
    (size, *_) = api.get("/topics/orders/sizes").json()
    assert size["size_bytes"] > 0
    cluster.restart(3)
    wait_for(healthy, "all replicas in sync", WAIT_SECONDS)
