"""The REST API on a broker without SASL: topics, messages, groups, the cluster, and what holds for every request."""

import contextlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from rest_support import create, problem, send

from zhumq import Consumer
from zhumq.testing.broker import RunningBroker
from zhumq.web.bodies import BODY_BYTES_MAX
from zhumq.web.server import HEAD_SECONDS_MAX
from zhumq.web.watching import LISTENERS_MAX

SECONDS_MAX = 60.0


def test_a_topic_is_created_shown_altered_and_deleted(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2, settings={"retention.ms": "1000000"})
    assert (
        problem(api.post("/topics", json={"topic": topic}), 409)["code"] == "TOPIC_ALREADY_EXISTS"
    )
    shown = api.get(f"/topics/{topic}").json()
    assert shown["settings"] == {"retention.ms": "1000000"}
    assert [each["latest"] for each in shown["partitions"]] == [0, 0]
    change = {"partitions": 3, "settings": {"retention.ms": None, "index.keys": "true"}}
    altered = api.patch(f"/topics/{topic}", json=change).json()
    assert altered["settings"] == {"index.keys": "true"}
    assert len(altered["partitions"]) == 3
    settings = {each["name"]: each for each in api.get(f"/topics/{topic}/settings").json()}
    assert settings["index.keys"] == {
        "name": "index.keys",
        "value": "true",
        "is_own": True,
        "default": "false",
        "origin": "own",
    }
    assert settings["retention.ms"]["origin"] == "default"
    assert not settings["retention.ms"]["is_own"]
    send(api, topic, "x", partition=1)
    sizes = api.get(f"/topics/{topic}/sizes").json()
    assert [each["size_bytes"] > 0 for each in sizes] == [False, True, False]
    assert api.get(f"/topics/{topic}/sizes?partition=1").json() == sizes[1:2]
    segments = api.get(f"/topics/{topic}/retention").json()["segments"]
    assert [each["next_offset"] for each in segments] == [0, 1, 0]
    assert api.delete(f"/topics/{topic}").status_code == 204
    assert problem(api.get(f"/topics/{topic}"), 404)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_refusals_of_the_broker_are_problems_with_its_reason(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    refused = problem(api.patch(f"/topics/{topic}", json={"partitions": 1}), 422)
    assert refused["code"] == "INVALID_PARTITIONS"
    bad = {"topic": f"{topic}-2", "settings": {"retention.ms": "never"}}
    assert problem(api.post("/topics", json=bad), 422)["code"] == "INVALID_CONFIG"
    problem(api.patch(f"/topics/{topic}", json={"settings": {"no.such": None}}), 422)
    problem(api.patch(f"/topics/{topic}", json={}), 400)
    for path in ("", "/settings", "/sizes", "/messages", "/retention", "/lookup?key=a"):
        problem(api.get(f"/topics/{topic}-none{path}"), 404)
    problem(api.delete(f"/topics/{topic}-none"), 404)
    problem(api.post(f"/topics/{topic}-none/messages", json={"messages": [{"value": "x"}]}), 404)
    assert f"{topic}-none" not in api.get("/topics?limit=1000").text


def test_topics_come_in_pages(api: httpx.Client, topic: str) -> None:
    names = [f"{topic}-{each}" for each in ("A", "b", "c-1", "c.1", "c_1")]
    for name in names:
        create(api, name, partitions=1)
    found: list[str] = []
    after = ""
    while True:
        page = api.get(
            "/topics", params={"search": topic.upper(), "limit": 2, "after": after}
        ).json()
        found += [each["topic"] for each in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert found == names


def test_figures_are_of_the_topics_of_a_page(api: httpx.Client, topic: str) -> None:
    names = [f"{topic}-{each}" for each in "ab"]
    for name in names:
        create(api, name, partitions=2)
    send(api, names[1], "1", "2", "3", partition=1)
    query = {"search": topic, "limit": 1}
    page = api.get("/topic-figures", params=query).json()
    (first,) = page["items"]
    assert first == {
        "topic": names[0],
        "messages": 0,
        "written": 0,
        "size_bytes": 0,
        "leaderless": 0,
        "underreplicated": 0,
    }
    after = api.get("/topic-figures", params={**query, "after": page["next"]}).json()
    (second,) = after["items"]
    assert (second["topic"], after["next"]) == (names[1], None)
    assert (second["messages"], second["written"]) == (3, 3)
    sizes = api.get(f"/topics/{names[1]}/sizes").json()
    assert second["size_bytes"] == sum(each["size_bytes"] for each in sizes) > 0


def test_messages_are_sent_and_read_in_pages(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    headers = [{"name": "h", "value": {"base64": "/w=="}}, {"name": "n"}]
    sent = send(api, topic, {"json": {"total": 1}}, "text", {"base64": "/w=="}, None, "", key="k",
                headers=headers, partition=1)  # fmt: skip
    assert sent == [{"partition": 1, "offset": offset} for offset in range(5)]
    first = api.get(f"/topics/{topic}/messages?limit=2&format=json").json()
    assert [each["value"] for each in first["items"]] == [
        {"size": 11, "json": {"total": 1}},
        {"size": 4, "text": "text"},
    ]
    assert not first["is_at_end"]
    message = first["items"][0]
    assert (message["partition"], message["offset"], message["key"]["text"]) == (1, 0, "k")
    assert message["headers"] == [
        {"name": "h", "value": {"size": 1, "base64": "/w=="}},
        {"name": "n", "value": None},
    ]
    rest = api.get(f"/topics/{topic}/messages", params={"after": first["next"]}).json()
    assert [each["value"] for each in rest["items"]] == [
        {"size": 1, "base64": "/w=="},
        None,
        {"size": 0, "text": ""},
    ]
    assert rest["is_at_end"]
    again = api.get(f"/topics/{topic}/messages", params={"after": rest["next"]}).json()
    assert (again["items"], again["next"]) == ([], rest["next"])


def test_messages_are_read_from_an_offset_a_time_and_the_end(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1, settings={"retention.ms": "-1"})
    for number in range(5):
        send(api, topic, str(number), key=str(number), timestamp_ms=1_000 * (number + 1))

    def values(**params: str | int | bool) -> list[str]:
        answer = api.get(f"/topics/{topic}/messages", params={"partition": 0, **params})
        assert answer.status_code == 200, answer.text
        return [each["value"]["text"] for each in answer.json()["items"]]

    assert values(**{"from": "3"}) == ["3", "4"]
    assert values(**{"from": "@3000"}) == ["2", "3", "4"]
    assert values(**{"from": "1970-01-01T00:00:05Z"}) == ["4"]
    assert values(**{"from": "latest"}) == []
    assert values(last=True, limit=2) == ["3", "4"]
    assert values(filter="key = '2' OR key = '3'") == ["2", "3"]
    assert values(last=True, limit=1, filter="key = '1'") == ["1"]
    problem(api.get(f"/topics/{topic}/messages?from=x"), 422)
    problem(api.get(f"/topics/{topic}/messages?partition=1"), 404)
    problem(api.get(f"/topics/{topic}/messages?after=x"), 400)
    assert "character" in str(problem(api.get(f"/topics/{topic}/messages?filter=a%20b%20="), 400))


def test_a_large_value_is_shown_up_to_a_bound(api: httpx.Client, topic: str) -> None:
    create(api, topic)
    send(api, topic, "ä" * 100_000)
    (message,) = api.get(f"/topics/{topic}/messages?value_bytes=11").json()["items"]
    assert message["value"] == {"size": 200_000, "text": "ä" * 5, "is_cut": True}


def test_a_reader_at_the_end_waits_for_the_next_message(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=3)
    end = api.get(f"/topics/{topic}/messages").json()["next"]
    assert api.get(f"/topics/{topic}/messages", params={"after": end, "wait_ms": 200}).json()["items"] == []  # fmt: skip
    found: list[str] = []

    def wait() -> None:
        deadline, after = time.monotonic() + SECONDS_MAX, end
        while not found and time.monotonic() < deadline:
            params = {"after": after, "wait_ms": 10_000}
            page = api.get(f"/topics/{topic}/messages", params=params).json()
            found.extend(each["value"]["text"] for each in page["items"])
            after = page["next"]

    waiting = threading.Thread(target=wait)
    waiting.start()
    send(api, topic, "now")
    waiting.join(SECONDS_MAX)
    assert found == ["now"]


def test_messages_are_found_by_their_key_and_tag(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    assert "index.keys" in str(problem(api.get(f"/topics/{topic}/lookup?key=a"), 422)["advice"])
    api.patch(f"/topics/{topic}", json={"settings": {"index.keys": "true"}})
    tag = [{"name": "zhumq-tags", "value": "eu"}]
    send(api, topic, "1", "2", key="a")
    send(api, topic, "3", key={"base64": "/w=="}, headers=tag)
    for query, values in (
        ("key=a", ["2", "1"]),
        ("key_base64=/w==", ["3"]),
        ("tag=eu", ["3"]),
        ("key=b", []),
    ):
        found = api.get(f"/topics/{topic}/lookup?{query}").json()
        assert [each["value"]["text"] for each in found["items"]] == values
    problem(api.get(f"/topics/{topic}/lookup"), 400)
    problem(api.get(f"/topics/{topic}/lookup?key=a&tag=b"), 400)


def test_messages_before_a_position_are_deleted(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    send(api, topic, "1", "2", "3", partition=1)
    path = f"/topics/{topic}/delete-records"
    shown = api.post(path, json={"before": "2", "dry_run": True}).json()
    plan = [{"partition": 0, "before": 0, "after": 0}, {"partition": 1, "before": 0, "after": 2}]
    assert shown == {"is_done": False, "changes": plan}
    assert api.get(f"/topics/{topic}").json()["partitions"][1]["messages"] == 3
    offsets = [{"partition": 1, "offset": 2}]
    done = api.post(path, json={"offsets": offsets}).json()
    assert done == {"is_done": True, "changes": plan[1:]}
    # Again, it deletes nothing.
    again = api.post(path, json={"offsets": offsets}).json()
    assert again["changes"] == [{"partition": 1, "before": 2, "after": 2}]
    done = api.post(path, json={"before": "latest", "partition": 1}).json()
    assert done["changes"] == [{"partition": 1, "before": 2, "after": 3}]
    assert api.get(f"/topics/{topic}/messages").json()["items"] == []
    for body in (
        {},
        {"before": "latest", "offsets": offsets},
        {"offsets": offsets, "partition": 1},
    ):
        problem(api.post(path, json=body), 400)
    problem(api.post(path, json={"before": "latest", "partition": 7}), 404)
    problem(api.post(path, json={"offsets": [{"partition": 7, "offset": 0}]}), 404)
    problem(api.post(path, json={"offsets": [{"partition": 0, "offset": 1}]}), 422)


def test_messages_that_are_state_are_not_deleted(api: httpx.Client, topic: str) -> None:
    create(api, topic, settings={"cleanup.policy": "compact"})
    api.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "earliest"}).raise_for_status()
    for name in (topic, "__consumer_offsets"):
        path = f"/topics/{name}/delete-records"
        found = problem(api.post(path, json={"before": "latest", "dry_run": True}), 422)
        assert found["code"] == "POLICY_VIOLATION"
        problem(api.post(path, json={"offsets": [{"partition": 0, "offset": 0}]}), 422)


def test_sending_to_a_partition_that_is_not_there_says_so(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    answer = api.post(
        f"/topics/{topic}/messages", json={"messages": [{"value": "x", "partition": 7}]}
    )
    assert "partition" in str(problem(answer, 404)["detail"])
    large = [{"value": "x" * (2 * 1024 * 1024)}]
    problem(api.post(f"/topics/{topic}/messages", json={"messages": large}), 422)


def test_a_group_is_listed_shown_reset_and_deleted(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    create(api, topic, partitions=1)
    send(api, topic, "1", "2", "3")
    group = f"{topic}/of a ü"
    path = f"/groups/{topic}%2Fof%20a%20%C3%BC"
    problem(api.get(path), 404)
    with Consumer(topic, group=group, bootstrap=running.bootstrap) as consumer:
        deadline = time.monotonic() + SECONDS_MAX
        while not consumer.poll(1.0):
            assert time.monotonic() < deadline
        shown = api.get(path).json()
        assert (shown["group"], len(shown["members"])) == (group, 1)
        reset = {"topic": topic, "to": "earliest"}
        problem(api.post(f"{path}/reset", json=reset), 409)
        problem(api.delete(path), 409)
    preview = api.post(f"{path}/reset", json={"topic": topic, "to": "1", "dry_run": True}).json()
    assert not preview["is_done"]
    assert preview["changes"][0]["after"] == 1
    done = api.post(f"{path}/reset", json={"topic": topic, "to": "2"}).json()
    assert done["is_done"]
    assert done["changes"][0]["before"] == preview["changes"][0]["before"]
    (offset,) = api.get(path).json()["offsets"]
    assert (offset["committed"], offset["latest"], offset["lag"]) == (2, 3, 1)
    assert api.delete(f"{path}/offsets/{topic}").status_code == 204
    problem(api.delete(f"{path}/offsets/{topic}"), 404)
    api.post(f"{path}/reset", json=reset).raise_for_status()
    listed = api.get("/groups", params={"search": group, "state": "empty"}).json()["items"]
    assert [each["group"] for each in listed] == [group]
    assert api.delete(path).status_code == 204
    problem(api.get(path), 404)


def test_the_settings_of_a_share_group_are_changed(api: httpx.Client, topic: str) -> None:
    path = f"/groups/{topic}/settings"
    changed = api.patch(path, json={"settings": {"zhumq.filter": "key = 'a'"}}).json()
    assert {each["name"]: each["is_own"] for each in changed}["zhumq.filter"]
    cleared = api.patch(path, json={"settings": {"zhumq.filter": None}}).json()
    assert not {each["name"]: each["is_own"] for each in cleared}["zhumq.filter"]
    problem(api.patch(path, json={"settings": {}}), 400)


def test_the_cluster_has_its_broker_and_its_disk(api: httpx.Client, running: RunningBroker) -> None:
    cluster = api.get("/cluster").json()
    assert [each["address"] for each in cluster["brokers"]] == [running.bootstrap]
    assert (cluster["controller"], cluster["leaderless"], cluster["underreplicated"]) == (0, 0, 0)
    assert api.get("/cluster/unwell-partitions").json() == {"items": [], "next": None}
    (folder,) = api.get("/cluster/data-folders").json()
    assert folder["folder"] == str(running.data_dir)
    assert folder["total_bytes"] > folder["usable_bytes"] > 0
    disk = shutil.disk_usage(running.data_dir)
    # As `df` and the watermarks count: what the file system keeps for root is neither used nor free.
    assert folder["total_bytes"] == pytest.approx(disk.used + disk.free, rel=0.01)


def test_an_answer_that_has_not_changed_is_not_sent_again(api: httpx.Client, topic: str) -> None:
    create(api, topic)
    first = api.get(f"/topics/{topic}")
    tag = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    again = api.get(f"/topics/{topic}", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    send(api, topic, "x")
    assert api.get(f"/topics/{topic}", headers=tag).status_code == 200
    head = api.head(f"/topics/{topic}")
    assert (head.status_code, head.content) == (200, b"")


def test_requests_that_are_not_as_described_are_refused(api: httpx.Client, topic: str) -> None:
    problem(api.get("/nothing"), 404)
    refused = api.put("/topics")
    problem(refused, 405)
    assert {"GET", "POST"} <= set(refused.headers["allow"].split(", "))
    problem(api.get("/topics?limit=0"), 400)
    problem(api.get("/topics?limit=1&limit=2"), 400)
    problem(api.get("/topics?unknown=1"), 400)
    problem(api.get("/topics/a%2Fb"), 400)
    problem(api.get("/topics/%ff"), 400)
    problem(api.post("/topics", content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    problem(api.post("/topics", json={"topic": topic, "other": 1}), 400)
    problem(api.request("GET", "/topics", json={}), 400)


def test_a_body_above_the_bound_is_refused(api: httpx.Client, topic: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(2 * BODY_BYTES_MAX // 65_536):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    problem(api.post("/topics", content=endless(), headers=headers), 413)


def test_pages_of_other_sites_change_nothing(api: httpx.Client, topic: str) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        problem(api.post("/topics", json={"topic": topic}, headers=headers), 403)
    problem(api.get("/topics", headers={"Host": "evil.example"}), 421)
    problem(api.get(f"/topics/{topic}"), 404)


def test_every_answer_has_the_security_headers(api: httpx.Client) -> None:
    for answer in (api.get("/topics"), api.get("/nothing"), api.get("/topics?limit=0")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers


def test_events_name_what_changes(api: httpx.Client, topic: str) -> None:
    with api.stream("GET", "/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = _events(stream.iter_lines())
        assert next(events)["change"] == "connected"
        # The first look is what later ones are compared with: create until one is named.
        deadline, number = time.monotonic() + SECONDS_MAX, 0
        names: set[str] = set()
        while not names:
            assert time.monotonic() < deadline
            number += 1
            create(api, f"{topic}-{number}")
            create(api, f"{topic}-{number}-b")
            event = next(events)
            if event["kind"] == "topic" and event["change"] == "created":
                names.add(str(event["name"]))
        assert names <= {f"{topic}-{each}{end}" for each in range(number + 1) for end in ("", "-b")}


def _events(lines: Iterator[str]) -> Iterator[dict[str, object]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_streams_of_events_are_bounded_and_a_closed_one_makes_room(api: httpx.Client) -> None:
    read = []  # An iterator that is dropped closes its stream.
    with contextlib.ExitStack() as streams:
        for _ in range(LISTENERS_MAX):
            stream = streams.enter_context(api.stream("GET", "/events"))
            assert stream.status_code == 200
            read.append(stream.iter_lines())
            next(read[-1])
        with api.stream("GET", "/events") as refused:
            assert refused.status_code == 503
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with api.stream("GET", "/events") as again:
            if again.status_code == 200:
                break
        assert time.monotonic() < deadline


@pytest.mark.thorough
def test_clients_that_send_no_request_are_disconnected(url: str, api: httpx.Client) -> None:
    address = urlsplit(url)
    with contextlib.ExitStack() as connections:
        silent, slow = (
            connections.enter_context(socket.create_connection((address.hostname, address.port)))
            for _ in range(2)
        )
        slow.sendall(b"GET /healthz HTT")
        assert api.get("/topics").status_code == 200
        for each in (silent, slow):
            each.settimeout(HEAD_SECONDS_MAX + SECONDS_MAX)
            assert each.recv(1) == b""


def test_the_document_is_served(api: httpx.Client) -> None:
    described = api.get("/openapi.json")
    assert described.json()["openapi"] == "3.1.0"
    assert httpx.get(str(api.base_url.copy_with(path="/healthz"))).text == "ok\n"


@pytest.mark.parametrize("name", ["authentication", "user", "csrf_token"])
def test_a_broker_without_sasl_needs_no_login(api: httpx.Client, name: str) -> None:
    session = api.get("/session").json()
    assert session[name] == ("none" if name == "authentication" else None)
    assert api.post("/session", json={"user": "a", "password": "b"}).json() == session
