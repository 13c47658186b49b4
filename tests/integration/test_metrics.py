"""/metrics and /readyz of a live broker: times of requests by API, and what keeps clients from being served."""

import re
import time
import urllib.error
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Producer

from zhumq.testing.broker import broker

SECONDS_MAX = 30.0
ALWAYS_REFUSED = {"disk.watermark.refused.percent": "1"}


def get(http: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{http}{path}", timeout=SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def times_of(http: str, api: str) -> tuple[list[tuple[float, int]], int, float]:
    """The buckets of an API, its number of requests, and their seconds."""
    _, page = get(http, "/metrics")
    buckets = re.findall(
        rf'^zhumq_request_seconds_bucket{{api="{api}",le="(.*)"}} (\d+)$', page, re.MULTILINE
    )
    count = re.search(rf'^zhumq_request_seconds_count{{api="{api}"}} (\d+)$', page, re.MULTILINE)
    total = re.search(rf'^zhumq_request_seconds_sum{{api="{api}"}} (\S+)$', page, re.MULTILINE)
    assert count is not None, page
    assert total is not None
    return [(float(le), int(each)) for le, each in buckets], int(count[1]), float(total[1])


def test_requests_are_counted_by_api_and_by_the_time_until_their_answer(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0, "acks": 1})
        for number in range(20):
            producer.produce("t", str(number))
            assert producer.flush(SECONDS_MAX) == 0
        buckets, count, seconds = times_of(running.http, "Produce")
        assert count == 20
        assert buckets[-1] == (float("inf"), 20)
        assert [each for _, each in buckets] == sorted(each for _, each in buckets)
        assert 0 < seconds < SECONDS_MAX


def test_answers_that_wait_count_with_their_wait(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running:
        Producer({"bootstrap.servers": running.bootstrap}).flush(0)
        consumer = Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": "g",
                "fetch.wait.max.ms": 300,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": True,
            }
        )
        consumer.subscribe(["t"])
        producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all"})
        producer.produce("t", b"x")
        assert producer.flush(SECONDS_MAX) == 0
        assert times_of(running.http, "Produce")[1] == 1
        deadline = time.monotonic() + SECONDS_MAX
        waited = 0
        while not waited:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
            if 'api="Fetch"' in get(running.http, "/metrics")[1]:
                buckets, count, _ = times_of(running.http, "Fetch")
                waited = count - next(each for le, each in buckets if le >= 0.25)
        consumer.close()


def test_a_broker_is_ready_while_it_serves_and_not_while_it_refuses_messages(
    tmp_path: Path,
) -> None:
    with broker(data_dir=tmp_path) as running:
        assert get(running.http, "/readyz") == (200, "ready\n")
    with broker(data_dir=tmp_path, settings=ALWAYS_REFUSED) as running:
        deadline = time.monotonic() + SECONDS_MAX
        while (found := get(running.http, "/readyz"))[0] == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        status, text = found
        assert status == 503
        assert text.startswith("not ready\nthe disk is ")
        # It needs no restart, so /healthz says that it lives.
        assert get(running.http, "/healthz")[0] == 200
