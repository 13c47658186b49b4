"""The serving probe finds leaders that do not serve: that do not return an acknowledged message."""

import time
from types import SimpleNamespace

import pytest
from chaos.serving import PARTITIONS, TOPICS, ServingProbe
from confluent_kafka.admin import AdminClient

from chaos import serving
from zhumq.testing.broker import RunningBroker


@pytest.fixture
def probe(zhumq_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> ServingProbe:
    """A probe of one real broker."""
    monkeypatch.setattr(serving, "REPLICAS", 1)
    monkeypatch.setattr(serving, "MIN_IN_SYNC", 1)
    cluster_under_test = SimpleNamespace(
        broker_ids=[0],
        cluster=SimpleNamespace(brokers={0: zhumq_broker}),
        admin=AdminClient({"bootstrap.servers": zhumq_broker.bootstrap}),
    )
    made = ServingProbe(cluster_under_test)  # type: ignore[arg-type]
    made.create_topics()
    return made


def test_every_leader_is_asked_and_serves(probe: ServingProbe) -> None:
    probe.check(time.monotonic())
    assert probe.result.late == []
    assert probe.result.leaders_asked == len(TOPICS) * PARTITIONS
    assert probe.result.slowest_seconds > 0


def test_a_leader_that_takes_messages_and_returns_none_is_found(
    probe: ServingProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SERVES_SECONDS_MAX", 0.01)
    monkeypatch.setattr(serving, "SETTLE_SECONDS_MAX", 0.2)
    ask = ServingProbe._ask

    def without_fetches(
        self: ServingProbe, broker_id: int, key: object, request: object, version: object
    ):  # type: ignore[no-untyped-def]
        if key is serving.ApiKey.FETCH and request.topics[0].partitions[0].partition == 2:  # type: ignore[attr-defined]
            return None
        return ask(self, broker_id, key, request, version)  # type: ignore[arg-type]

    monkeypatch.setattr(ServingProbe, "_ask", without_fetches)
    probe.check(time.monotonic())
    assert sorted(set(probe.result.late[:2])) == [
        "broker 0 does not serve probe-fetch-2",
        "broker 0 does not serve probe-raft-2",
    ]
    assert probe.result.late[-1] == "of 12 leaders 10 serve"


def test_a_topic_without_leaders_is_late_at_the_deadline(
    probe: ServingProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SETTLE_SECONDS_MAX", 0.1)
    admin = probe._cluster_under_test.admin
    admin.delete_topics(["probe-raft"])["probe-raft"].result(10)
    probe.check(time.monotonic())
    assert probe.result.late == ["of 6 leaders 6 serve"]
