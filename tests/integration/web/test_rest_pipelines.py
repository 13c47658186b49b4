"""Pipelines over REST: what runs have published, and nothing that others have written in its place."""

import json
import time

import httpx
import pytest
from published_runs import FINDINGS, RUN, write
from rest_support import problem

pytest.importorskip("py4j")

from zhumq.admin.pipeline_runs import DOCUMENT_BYTES_MAX
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.publishing import publishing
from zhumq.testing.broker import RunningBroker

MINUTE_MS = 60_000


def names(api: httpx.Client) -> list[str]:
    return [each["pipeline"] for each in api.get("/pipelines").json()["items"]]


def test_a_run_that_publishes_is_listed_and_shown(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    lines: list[str] = []
    brokers = Brokers(bootstrap=running.bootstrap)
    with publishing(brokers, topic, lines.append) as publish:
        for state in ("starting", "running", "done"):
            publish({**RUN, "state": state})
    assert lines == []
    (run,) = (each for each in api.get("/pipelines").json()["items"] if each["pipeline"] == topic)
    assert (run["state"], run["lag"], run["bad_rows"], run["has_findings"]) == (
        "done",
        250,
        37,
        True,
    )
    assert [each["name"] for each in run["sinks"]] == ["counts", "alerts", "dead_letters"]
    assert (run["sinks"][0]["state_rows"], run["sinks"][0]["error"]) == (70, None)
    assert run["sinks"][0]["rules_broken"] == {"good.positive": 12}
    assert run["reads"] == RUN["reads"]
    assert api.get(f"/pipelines/{topic}").json() == {"run": run, "findings": FINDINGS}


def test_the_progress_of_runs_is_there_as_metrics(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    name = f'{topic}"\\'
    write(running.bootstrap, name, json.dumps(RUN).encode())
    server = str(api.base_url).partition("/api/")[0]
    answer = httpx.get(f"{server}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    labels = f'pipeline="{topic}\\"\\\\"'
    lines = [each for each in answer.text.splitlines() if labels in each]
    for line in (
        f'zhumq_pipeline_state{{{labels},state="done"}} 1',
        f'zhumq_pipeline_sink_rows_in_total{{{labels},sink="counts"}} 120000',
        f'zhumq_pipeline_sink_batch_seconds{{{labels},sink="counts"}} 1.8',
        f'zhumq_pipeline_sink_lag{{{labels},sink="alerts"}} 10',
        f'zhumq_pipeline_sink_watermark_seconds{{{labels},sink="counts"}} 1767268800',
        f'zhumq_pipeline_sink_failing{{{labels},sink="counts"}} 0',
        f'zhumq_pipeline_rule_broken_total{{{labels},sink="counts",rule="good.positive"}} 12',
        f'zhumq_pipeline_read_rows_total{{{labels},source="logs"}} 60000',
    ):
        assert line in lines
    # A figure that Spark does not report has no sample; its name and its help are there.
    assert "# TYPE zhumq_pipeline_sink_behind_bytes gauge" in answer.text
    assert not [each for each in lines if "behind_bytes" in each]


def test_a_run_that_cannot_publish_says_so_once_and_goes_on(topic: str) -> None:
    lines: list[str] = []
    with publishing(Brokers(bootstrap="127.0.0.1:1"), topic, lines.append) as publish:
        publish(RUN)
    assert len(lines) == 1
    assert lines[0].startswith("progress is not published: ")


def test_a_run_that_is_silent_is_lost(
    api: httpx.Client, running: RunningBroker, topic: str
) -> None:
    now_ms = int(time.time() * 1_000)
    active = json.dumps({**RUN, "state": "running"}).encode()
    write(running.bootstrap, topic, active, now_ms)
    assert api.get(f"/pipelines/{topic}").json()["run"]["state"] == "running"
    write(running.bootstrap, topic, active, now_ms - 2 * MINUTE_MS)
    assert api.get(f"/pipelines/{topic}").json()["run"]["state"] == "lost"
    write(running.bootstrap, topic, json.dumps(RUN).encode(), now_ms - 2 * MINUTE_MS)
    assert api.get(f"/pipelines/{topic}").json()["run"]["state"] == "done"


@pytest.mark.parametrize(
    "value",
    [
        b"not JSON",
        b"\xff",
        b"[" * 10_000,
        json.dumps({**RUN, "version": 2}).encode(),
        json.dumps({**RUN, "state": "exploded"}).encode(),
        json.dumps({**RUN, "pid": -1}).encode(),
        json.dumps({**RUN, "host": "h" * 2_000}).encode(),
        json.dumps(RUN).encode() + b" " * DOCUMENT_BYTES_MAX,
        None,
    ],
    ids=str,
)
def test_what_no_run_has_written_is_left_out(
    api: httpx.Client, running: RunningBroker, topic: str, value: bytes | None
) -> None:
    write(running.bootstrap, f"{topic}-good", json.dumps(RUN).encode())
    write(running.bootstrap, topic, value)
    found = names(api)
    assert f"{topic}-good" in found
    assert topic not in found
    problem(api.get(f"/pipelines/{topic}"), 404)


def test_runs_come_in_pages(api: httpx.Client, running: RunningBroker, topic: str) -> None:
    for number in range(3):
        write(running.bootstrap, f"{topic}-{number}", json.dumps(RUN).encode())
    everything = names(api)
    assert everything == sorted(everything)
    paged, after = [], ""
    while True:
        page = api.get("/pipelines", params={"limit": 2, "after": after}).json()
        paged += [each["pipeline"] for each in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert paged == everything
