"""The REST API for operators: subscriptions, dead letters, delayed and half messages, transactions, producers."""

import time
from collections.abc import Iterator

import confluent_kafka
import httpx
import pytest
from rest_support import create, problem, send
from tests.integration.written_transactions import append_forgotten_transaction, prepare_two_phase

import zhumq
from zhumq import Consumer
from zhumq.client.message import Message
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 60.0
HANGING = "hanging"


@pytest.fixture(scope="module")
def start_offset() -> list[int]:
    return []


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, start_offset: list[int]
) -> Iterator[RunningBroker]:
    """A broker with a transaction that no coordinator knows."""
    data_dir = tmp_path_factory.mktemp("operations")
    with broker(data_dir=data_dir) as first, zhumq.Admin(first.bootstrap) as admin:
        admin.create_topic(HANGING, partitions=1)
    start_offset.append(append_forgotten_transaction(data_dir, HANGING))
    settings = {"transaction.two.phase.commit.enable": "true"}
    with broker(data_dir=data_dir, settings=settings) as started:
        yield started


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline
        found += consumer.poll(1.0)
    return found


@pytest.mark.thorough
def test_dead_letters_are_counted_read_in_pages_and_replayed(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "0", "1", "2", "3", key="k")
    problem(api.get(f"/dead-letters/{topic}"), 404)
    with Consumer(
        topic, group=topic, mode="ptp", bootstrap=running.bootstrap, auto_ack=False
    ) as consumer:
        for number, message in enumerate(take(consumer, 4)):
            message.reject(f"bad {number % 2}")
    name = f"{topic}.dlq"

    def counts() -> dict[str, int]:
        listed = api.get("/dead-letters?limit=1000").json()["items"]
        (found,) = [each for each in listed if each.pop("topic") == name]
        return dict(found)

    assert counts() == {"left": 4, "replayed": 0}
    reasons = api.get(f"/dead-letters/{topic}/reasons").json()
    assert [(each["reason"], each["left"]) for each in reasons] == [("bad 0", 2), ("bad 1", 2)]
    found, after = [], ""
    while True:
        page = api.get(f"/dead-letters/{topic}", params={"limit": 3, "after": after}).json()
        found += page["items"]
        if page["next"] is None:
            break
        after = page["next"]
    assert [each["value"]["text"] for each in found] == ["0", "1", "2", "3"]
    first = found[0]
    assert first["origin"] == {"topic": topic, "partition": 0, "offset": 0}
    assert (first["group"], first["topic"]) == (topic, name)
    assert (first["reason"], first["replayed"]) == ("bad 0", False)
    assert api.get(f"/dead-letters/{topic}?group=other").json()["items"] == []
    edited = {"value": {"text": "2 edited"}, "key": "k", "headers": [{"name": "by", "value": "me"}]}
    place = {"partition": found[2]["partition"], "offset": found[2]["offset"], "edited": edited}
    replay = f"/dead-letters/{topic}/replay"
    assert api.post(replay, json={"only": [place]}).json() == {"replayed": 1}
    assert counts() == {"left": 3, "replayed": 1}
    assert api.post(replay, json={"limit": 2}).json() == {"replayed": 2}
    assert counts() == {"left": 1, "replayed": 3}
    assert api.post(replay, json={"limit": 2}).json() == {"replayed": 1}
    assert api.post(replay, json={"limit": 2}).json() == {"replayed": 0}
    assert counts() == {"left": 0, "replayed": 4}
    again = api.get(f"/topics/{topic}/messages?from=4").json()["items"]
    assert sorted(each["value"]["text"] for each in again) == ["0", "1", "2 edited", "3"]
    (sent,) = [each for each in again if each["value"]["text"] == "2 edited"]
    assert sent["headers"][0] == {"name": "by", "value": {"size": 2, "text": "me"}}


def test_subscriptions_and_push_sessions_are_listed_and_resumed(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "0")
    with Consumer(
        topic, group=topic, mode="ptp", bootstrap=running.bootstrap, consumer="one", auto_ack=False
    ) as consumer:
        take(consumer, 1)
        (group,) = api.get("/subscriptions", params={"search": topic}).json()["items"]
        assert (group["mode"], group["claims"], group["state"]) == ("ptp", [topic], "Stable")
        assert [each["consumer"] for each in group["consumers"]] == ["one"]
        assert [each["in_flight"] for each in group["partitions"]] == [1]
        (session,) = api.get("/push-sessions", params={"group": topic}).json()["items"]
        assert (session["state"], session["connected"], session["in_flight"]) == ("active", True, 1)
        assert api.get("/push-sessions?state=parked").json()["items"] == []
        (listed,) = api.get("/groups", params={"search": topic}).json()["items"]
        assert (listed["mode"], listed["claims"]) == ("ptp", [topic])
        problem(api.post(f"/topics/{topic}/release"), 409)
    problem(api.post("/push-sessions/none/resume"), 404)
    assert api.post(f"/topics/{topic}/release").json() == {"group": topic}
    problem(api.post(f"/topics/{topic}/release"), 404)


def test_delayed_messages_are_listed_in_pages_and_cancelled(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2, settings={"delay.enable": "true"})
    due_ms = (int(time.time()) + 3_600) * 1_000
    for number in range(5):
        # The first three are due at the same time.
        headers = [{"name": "zhumq-deliver-at", "value": str(due_ms + max(number - 2, 0))}]
        send(api, topic, str(number), headers=headers, partition=number % 2)
    path = f"/topics/{topic}/scheduled"
    deadline = time.monotonic() + SECONDS_MAX
    while len(api.get(path).json()["items"]) < 5:
        assert time.monotonic() < deadline
    found, after = [], ""
    while True:
        page = api.get(path, params={"limit": 1, "after": after}).json()
        assert len(page["items"]) <= 1
        found += page["items"]
        if page["next"] is None:
            break
        after = page["next"]
    assert [each["due_ms"] - due_ms for each in found] == [0, 0, 0, 1, 2]
    assert len({each["id"] for each in found}) == 5
    assert api.delete(f"{path}/{found[0]['id']}").status_code == 204
    problem(api.delete(f"{path}/{found[0]['id']}"), 404)
    problem(api.delete(f"{path}/x"), 400)
    problem(api.delete(path), 400)
    gone = api.delete(path, params={"from_ms": due_ms, "to_ms": due_ms + 2})
    assert gone.json() == {"cancelled": 3}
    assert [each["id"] for each in api.get(path).json()["items"]] == [found[4]["id"]]
    problem(api.get(path, params={"after": "x"}), 400)


def test_half_messages_are_listed_shown_and_decided(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    with zhumq.HalfMessageProducer(running.bootstrap, group=topic, check=None) as producer:
        halves = [producer.prepare(topic, f"order {number}", key="k") for number in range(2)]
        listed = api.get("/half-messages", params={"group": topic, "state": "pending"}).json()
        assert {each["id"] for each in listed["items"]} == {each.id for each in halves}
        assert api.get(f"/half-messages?group={topic}&limit=1").json()["has_more"]
        assert api.get(f"/half-messages?group={topic}&state=failed").json()["items"] == []
        shown = api.get(f"/half-messages/{halves[0].id}").json()
        assert (shown["has_body"], shown["value"]["text"]) == (True, "order 0")
        assert api.post(f"/half-messages/{halves[0].id}/commit").status_code == 204
        assert api.post(f"/half-messages/{halves[1].id}/rollback").status_code == 204
        problem(api.post(f"/half-messages/{halves[1].id}/commit"), 422)
    deadline = time.monotonic() + SECONDS_MAX
    while not (items := api.get(f"/topics/{topic}/messages").json()["items"]):
        assert time.monotonic() < deadline
    assert [each["value"]["text"] for each in items] == ["order 0"]
    problem(api.get("/half-messages/none"), 404)


def test_transactions_and_producers_are_listed_shown_and_ended(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    (listed,) = api.get("/transactions", params={"pattern": topic}).json()["items"]
    assert (listed["transactional_id"], listed["state"]) == (topic, "Ongoing")
    shown = api.get(f"/transactions/{topic}").json()
    assert shown["partitions"] == [{"topic": topic, "partition": 0}]
    (writing,) = api.get(f"/topics/{topic}/producers").json()["items"]
    assert (writing["producer_id"], writing["transaction_start"]) == (shown["producer_id"], 0)
    assert api.get(f"/topics/{topic}/messages").json()["items"] == []
    seen = api.get(f"/topics/{topic}/messages?isolation=read_uncommitted").json()["items"]
    assert [each["value"]["text"] for each in seen] == ["open"]
    problem(api.post(f"/transactions/{topic}/commit"), 422)
    assert api.post(f"/transactions/{topic}/abort").json()["state"] == "Ongoing"
    problem(api.post(f"/transactions/{topic}/abort"), 422)
    problem(api.get("/transactions/none"), 404)
    problem(api.get("/transactions?state=Open"), 422)
    problem(api.get("/transactions?pattern=("), 422)


def test_a_prepared_transaction_is_committed(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    prepare_two_phase(running.bootstrap, topic, topic, b"prepared")
    (listed,) = api.get("/transactions", params={"pattern": topic}).json()["items"]
    assert listed["is_two_phase"]
    assert api.post(f"/transactions/{topic}/commit").json()["transactional_id"] == topic
    deadline = time.monotonic() + SECONDS_MAX
    while not api.get(f"/topics/{topic}/messages").json()["items"]:
        assert time.monotonic() < deadline


def test_a_hanging_transaction_is_found_and_aborted(
    api: httpx.Client, start_offset: list[int]
) -> None:
    (found,) = api.get("/hanging-transactions", params={"older_than_ms": 0}).json()
    place = {"topic": HANGING, "partition": 0, "start_offset": start_offset[0]}
    assert {name: found[name] for name in place} == place
    assert api.post("/hanging-transactions/abort", json=place).status_code == 200
    problem(api.post("/hanging-transactions/abort", json=place), 404)
    assert api.get("/hanging-transactions", params={"older_than_ms": 0}).json() == []


def test_producers_are_listed_with_where_they_write(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "client.id": f"client of {topic}"}
    )
    for partition in (0, 1):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    first = api.get("/producers", params={"topic": topic, "limit": 1}).json()
    rest = api.get("/producers", params={"topic": topic, "after": first["next"]}).json()
    found = first["items"] + rest["items"]
    assert rest["next"] is None
    assert [(each["client_id"], each["partition"], each["messages"]) for each in found] == [
        (f"client of {topic}", 0, 1),
        (f"client of {topic}", 1, 1),
    ]
    assert {each["kind"] for each in found} == {"plain"}
    everything = api.get("/producers", params={"limit": 1_000}).json()["items"]
    assert topic in {each["topic"] for each in everything}


def test_a_history_has_steps_from_one_time_to_another(api: httpx.Client, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    answer = api.get(
        "/history/cluster", params={"from": now_ms - 600_000, "to": now_ms, "points": 5}
    )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["what"], found["step_ms"]) == ("cluster", 120_000)
    assert {len(each) for each in found["series"].values()} == {5}
    assert found["start_ms"] + 5 * found["step_ms"] >= now_ms
    unknown = api.get("/history/topic", params={"name": topic}).json()
    assert set(unknown["series"]["bytes_in"]) == {None}
    problem(api.get("/history/topic"), 422)
    problem(api.get("/history/weather"), 400)
    problem(api.get("/history/cluster", params={"points": 0}), 400)
    problem(api.get("/history/cluster", params={"from": now_ms, "to": now_ms - 1}), 422)
    problem(api.get("/history/cluster", params={"broker": 99}), 404)
