"""Metrics of transactions at /metrics: open, two-phase, the oldest one, and how they ended."""

import re
import time
import urllib.request

import confluent_kafka
from tests.integration.written_transactions import SECONDS_MAX, prepare_two_phase

import zhumq
from zhumq.testing.broker import broker

TOPIC = "t"
_SAMPLE = re.compile(r"^zhumq_transactions_(\w+) (\S+)$", re.MULTILINE)


def samples(http: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=SECONDS_MAX) as answer:
        return {name: float(value) for name, value in _SAMPLE.findall(answer.read().decode())}


def wait_for(http: str, **expected: float) -> dict[str, float]:
    deadline = time.monotonic() + SECONDS_MAX
    while not expected.items() <= (found := samples(http)).items():
        assert time.monotonic() < deadline, found
    return found


def begin(bootstrap: str, name: str, timeout_ms: int = 60_000) -> confluent_kafka.Producer:
    """A producer with a message in an open transaction."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def test_transactions_are_counted_by_their_state() -> None:
    with broker(settings={"transaction.two.phase.commit.enable": "true"}) as running:
        with zhumq.Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        none = {"open": 0, "two_phase_open": 0, "ending": 0, "oldest_open_seconds": 0}
        wait_for(running.http, **none, committed_total=0, aborted_total=0)
        committed = begin(running.bootstrap, "committed")
        aborted = begin(running.bootstrap, "aborted")
        prepare_two_phase(running.bootstrap, "prepared", TOPIC, b"x")
        found = wait_for(running.http, open=3, two_phase_open=1)
        deadline = time.monotonic() + SECONDS_MAX
        while samples(running.http)["oldest_open_seconds"] <= found["oldest_open_seconds"]:
            assert time.monotonic() < deadline, "the oldest transaction does not grow older"
        committed.commit_transaction(SECONDS_MAX)
        aborted.abort_transaction(SECONDS_MAX)
        wait_for(running.http, open=1, two_phase_open=1, committed_total=1, aborted_total=1)
        begin(running.bootstrap, "silent", timeout_ms=1000)
        wait_for(running.http, open=1, ending=0, committed_total=1, aborted_total=2)
