"""Operations of the cluster over REST before a single broker: what there is to see, and what is refused plainly."""

from importlib import metadata

import httpx
from rest_support import create, problem, send


def test_brokers_have_a_version_and_a_size(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=2)
    send(api, topic, "x" * 1_000)
    (broker,) = api.get("/cluster/brokers").json()
    assert broker["version"] == metadata.version("zhumq")
    assert broker["size_bytes"] > 1_000
    assert broker["leads"] == broker["replicas"] >= 2
    assert broker["controller"] is True


def test_a_broker_shows_its_settings(api: httpx.Client) -> None:
    (broker,) = api.get("/cluster/brokers").json()
    path = f"/cluster/brokers/{broker['broker']}/settings"
    found = {each["name"]: each for each in api.get(path).json()}
    retention = found["log.retention.ms"]
    assert (retention["origin"], retention["value"]) == ("default", retention["default"])
    problem(api.get("/cluster/brokers/77/settings"), 404)


def test_a_single_broker_has_nothing_to_move(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    assert api.get("/cluster/reassignments").json() == {"items": [], "next": None}
    for body in ({}, {"topic": topic}, {"topic": topic, "brokers": [0], "replicas": 1}):
        proposal = api.post("/cluster/reassignments/plan", json=body).json()
        assert (proposal["moves"], proposal["left_out"], proposal["copied_bytes"]) == ([], 0, 0)
    drained = api.post("/cluster/reassignments/plan", json={"drain": 0})
    assert "only 0 brokers would be left" in str(problem(drained, 422)["detail"])
    more = api.post("/cluster/reassignments/plan", json={"topic": topic, "replicas": 2})
    assert "2 replicas" in str(problem(more, 422)["detail"])
    ended = {"partitions": [{"topic": topic, "partition": 0}]}
    assert api.post("/cluster/reassignments/cancel", json=ended).json() == {"cancelled": 0}


def test_what_makes_no_sense_is_refused(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    plan = "/cluster/reassignments/plan"
    problem(api.post(plan, json={"topic": topic, "drain": 0}), 400)
    problem(api.post(plan, json={"brokers": [0]}), 400)
    problem(api.post(plan, json={"topic": topic, "brokers": [0, 7]}), 404)
    problem(api.post(plan, json={"topic": "none"}), 404)
    problem(api.post(plan, json={"drain": 7}), 404)
    there = {"topic": topic, "partition": 0, "replicas": [0]}
    for moves, status in (
        ([there, there], 400),
        ([], 400),
        ([{**there, "replicas": [0, 7]}], 422),
        ([{**there, "replicas": [0, 0]}], 422),
        ([{**there, "partition": 7}], 404),
        ([{**there, "topic": "none"}], 404),
    ):
        problem(api.post("/cluster/reassignments", json={"moves": moves}), status)
    twice = {"partitions": [{"topic": topic, "partition": 0}] * 2}
    problem(api.post("/cluster/reassignments/cancel", json=twice), 400)
    unknown = {"partitions": [{"topic": "none", "partition": 0}]}
    problem(api.post("/cluster/reassignments/cancel", json=unknown), 404)


def test_the_rate_of_copies_is_limited_and_not(api: httpx.Client) -> None:
    assert api.get("/cluster/copy-rate").json() == {"bytes_per_second": None}
    for limit in (1_000_000, None):
        changed = api.put("/cluster/copy-rate", json={"bytes_per_second": limit})
        assert changed.status_code == 204, changed.text
        assert api.get("/cluster/copy-rate").json() == {"bytes_per_second": limit}
    problem(api.put("/cluster/copy-rate", json={"bytes_per_second": 0}), 400)
    problem(api.put("/cluster/copy-rate", json={}), 400)
