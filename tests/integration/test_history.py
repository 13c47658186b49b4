"""The history of a live broker: what was sent and read, who is behind, and that it survives kill -9."""

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from zhumq.admin.client import Admin
from zhumq.admin.errors import NotFound, Refused
from zhumq.admin.history import History, read_history
from zhumq.testing.broker import broker
from zhumq.testing.process import BrokerProcess, broker_process

SECONDS_MAX = 90.0
MESSAGES = 200
Found = TypeVar("Found")


def wait_for(look: Callable[[], Found | None], what: str) -> Found:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"there is no {what}"
        time.sleep(0.2)
    return found


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
    for _ in range(MESSAGES):
        producer.produce(topic, bytes(100))
    assert producer.flush(SECONDS_MAX) == 0


def messages_of(history: History, field: str) -> float:
    """How many messages the rates of the steps stand for."""
    rates = history.series[field]
    return sum(rate * history.step_ms / 1000 for rate in rates if rate is not None)


def shown(admin: Admin, what: str, name: str, field: str) -> Callable[[], History | None]:
    """The history once the field has a figure above zero."""

    def look() -> History | None:
        found = read_history(admin, what, name, points=400)
        return found if any(found.series[field]) else None

    return look


@pytest.mark.thorough
def test_a_history_has_what_was_sent_and_read_and_who_is_behind(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running, Admin(running.bootstrap) as admin:
        # The first look at the counters is the beginning of all rates.
        wait_for(lambda: read_once(admin), "first sample")
        produce(running.bootstrap, "orders")
        consumer = Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        read = 0
        while read < MESSAGES:
            read += len(consumer.consume(MESSAGES, 1.0))
        consumer.commit(offsets=[TopicPartition("orders", 0, MESSAGES - 50)], asynchronous=False)
        consumer.close()

        topic = wait_for(shown(admin, "topic", "orders", "messages_out"), "topic")
        assert messages_of(topic, "messages_in") == pytest.approx(MESSAGES, rel=0.3)
        assert messages_of(topic, "messages_out") >= MESSAGES * 0.7
        assert max(each or 0 for each in topic.series["size_bytes"]) > MESSAGES * 100
        cluster = read_history(admin, "cluster", points=400)
        assert messages_of(cluster, "messages_in") >= MESSAGES * 0.7
        assert any(cluster.series["requests"])
        assert any(cluster.series["producers"])
        disk = [
            (used, total)
            for used, total in zip(
                cluster.series["disk_used_bytes"], cluster.series["disk_total_bytes"], strict=True
            )
            if used is not None and total is not None
        ]
        assert all(0 < used <= total for used, total in disk)
        # Nothing is known of the time before the start.
        assert cluster.series["requests"][0] is None
        group = wait_for(shown(admin, "group", "billing", "lag_seconds"), "lag")
        assert max(each or 0 for each in group.series["lag"]) == 50
        unknown = read_history(admin, "topic", "no-such-topic")
        assert set(unknown.series["messages_in"]) == {None}
        page = urllib.request.urlopen(f"http://{running.http}/metrics").read().decode()
        counted = re.search(r'zhumq_topic_received_messages_total{topic="orders"} (\d+)', page)
        assert counted is not None
        assert int(counted[1]) == MESSAGES

        with pytest.raises(NotFound):
            read_history(admin, "cluster", broker=99)
        for wrong in ({"what": "weather"}, {"what": "topic"}, {"what": "cluster", "points": 0}):
            with pytest.raises(Refused):
                read_history(admin, **wrong)  # type: ignore[arg-type]


def read_once(admin: Admin) -> bool | None:
    found = read_history(admin, "cluster", points=400)
    return any(each is not None for each in found.series["requests"]) or None


@pytest.mark.thorough
def test_the_history_survives_a_kill(tmp_path: Path) -> None:
    with broker_process(tmp_path) as process:
        before = _history_of_a_burst(process)
        process.kill()
        process.start()
        with Admin(process.bootstrap) as admin:
            after = read_history(admin, "cluster", points=400)
        known = _known(before)
        assert known
        assert {time_ms: _known(after).get(time_ms) for time_ms in known} == known


def _history_of_a_burst(process: BrokerProcess) -> History:
    with Admin(process.bootstrap) as admin:
        wait_for(lambda: read_once(admin), "first sample")
        produce(process.bootstrap, "orders")
        return wait_for(shown(admin, "cluster", "", "messages_in"), "burst")


def _known(history: History) -> dict[int, float]:
    return {
        history.start_ms + place * history.step_ms: figure
        for place, figure in enumerate(history.series["messages_in"])
        if figure is not None
    }


def test_without_a_history_the_request_says_so_and_no_file_is_written(tmp_path: Path) -> None:
    settings = {"history.enable": "false"}
    with broker(data_dir=tmp_path, settings=settings) as running, Admin(running.bootstrap) as admin:
        with pytest.raises(Refused, match=r"history\.enable=false"):
            read_history(admin, "cluster")
        assert not (tmp_path / "history").exists()
