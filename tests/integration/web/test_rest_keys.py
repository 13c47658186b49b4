"""A key through all topics with an index, and what the cluster says of its address."""

import base64
import time

import httpx
from rest_support import create, problem, send

from zhumq.admin.client import Admin
from zhumq.admin.groups import describe_group
from zhumq.admin.key_trace import PER_TOPIC_MAX, trace_key
from zhumq.testing.broker import RunningBroker

INDEXED = {"index.keys": "true"}


def test_a_key_is_found_in_all_topics_with_an_index(api: httpx.Client, topic: str) -> None:
    orders, shipments, others = f"{topic}-a", f"{topic}-b", f"{topic}-c"
    create(api, orders, partitions=2, settings=INDEXED)
    create(api, shipments, partitions=1, settings=INDEXED)
    create(api, others, partitions=1)  # without an index
    now_ms = int(time.time() * 1000)
    send(api, orders, "paid", key=topic, timestamp_ms=now_ms)
    send(api, shipments, "sent", key=topic, timestamp_ms=now_ms + 1000)
    send(api, shipments, "of another", key="k-2")
    send(api, others, "not seen", key=topic)
    found = api.get("/keys", params={"key": topic}).json()
    assert [(each["topic"], each["value"]["text"]) for each in found["items"]] == [
        (shipments, "sent"),
        (orders, "paid"),
    ]
    assert set(found["searched"]) >= {orders, shipments}
    assert others not in found["searched"]
    assert (found["left_out"], found["is_complete"]) == ([], True)
    encoded = base64.b64encode(topic.encode()).decode()
    assert api.get("/keys", params={"key_base64": encoded}).json()["items"] == found["items"]
    problem(api.get("/keys"), 400)
    problem(api.get("/keys", params={"key": "k", "key_base64": encoded}), 400)
    problem(api.get("/keys", params={"key_base64": "?"}), 400)


def test_following_a_key_is_bounded(api: httpx.Client, running: RunningBroker, topic: str) -> None:
    create(api, topic, partitions=1, settings=INDEXED)
    send(api, topic, *(str(number) for number in range(PER_TOPIC_MAX + 5)), key=topic)
    found = api.get("/keys", params={"key": topic}).json()
    assert len(found["items"]) == PER_TOPIC_MAX
    assert found["is_complete"] is False
    with Admin(running.bootstrap) as admin:
        late = trace_key(admin, topic.encode(), limit=100, seconds_max=0.0)
    assert late.messages == ()
    assert topic in late.left_out
    assert late.is_complete is False


def test_the_cluster_has_the_address_that_programs_begin_with(
    api: httpx.Client, running: RunningBroker
) -> None:
    assert api.get("/cluster").json()["bootstrap"] == running.bootstrap


def test_a_history_is_of_the_last_minutes(api: httpx.Client) -> None:
    found = api.get("/history/cluster", params={"last_ms": 900_000, "points": 90}).json()
    assert found["step_ms"] == 10_000
    assert len(found["series"]["messages_in"]) in (90, 91)
    problem(api.get("/history/cluster", params={"last_ms": 0}), 400)


def test_a_group_that_has_read_everything_is_behind_by_nothing(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "one")
    api.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "latest"}).raise_for_status()
    assert api.get(f"/groups/{topic}").json()["lag_seconds"] == 0
    with Admin(running.bootstrap) as admin:
        assert describe_group(admin, topic).lag_seconds == 0
