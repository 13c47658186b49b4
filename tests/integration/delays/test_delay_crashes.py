"""Delayed messages and kill -9: the broker dies at any step of their way, and again and again."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashing_delays import POINTS
from delay_support import (
    SETTINGS,
    TOPIC,
    assert_in_due_order,
    create_topic,
    read_all,
    send_ahead,
    wait_for,
    wait_for_messages,
)

import zhumq
from zhumq.testing.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HERE = Path(__file__).resolve().parent
KILLS = 4
PARTITIONS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", settings=SETTINGS)
    process.start()
    yield process
    process.kill()


@pytest.mark.thorough
def test_pending_messages_survive_the_broker(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap)
    with zhumq.Producer(broker.bootstrap) as producer:
        for number in range(50):
            producer.send(TOPIC, b"%d" % number, delay=2 + number % 3)
        producer.send(TOPIC, b"far", delay=3600)
    for _ in range(2):
        broker.kill()
        broker.start()
    seen = wait_for_messages(broker.bootstrap, 50)
    assert Counter(each.value for each in seen) == Counter(b"%d" % each for each in range(50))
    dues = [each.due_ms or 0 for each in seen]
    assert dues == sorted(dues)
    with zhumq.Admin(broker.bootstrap) as admin:
        assert len(admin.scheduled(TOPIC).messages) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_broker_killed_at_any_point_delivers_once(broker: BrokerProcess, point: str) -> None:
    create_topic(broker.bootstrap)
    with zhumq.Producer(broker.bootstrap) as producer:
        producer.send(TOPIC, b"before", delay=0.1)
    wait_for_messages(broker.bootstrap, 1)
    broker.kill()
    usual = broker.program
    broker.program = (str(HERE / "crashing_delays.py"), point)
    broker.start()
    producer = zhumq.Producer(broker.bootstrap)
    for number in range(3):
        producer.send(TOPIC, b"message %d" % number, delay=0.2 * number)
        producer.send(TOPIC, b"plain %d" % number)
    sending = threading.Thread(target=producer.flush, args=(120,))
    sending.start()
    wait_for(lambda: not broker.running, f"the broker dies at {point}")
    broker.kill()
    broker.program = usual
    broker.start()
    sending.join()
    with zhumq.Producer(broker.bootstrap) as producer:
        producer.send(TOPIC, b"after", delay=1)
    expected = Counter(
        [b"before", b"after"]
        + [b"%s %d" % (kind, number) for kind in (b"message", b"plain") for number in range(3)]
    )
    wait_for_messages(broker.bootstrap, sum(expected.values()))
    with zhumq.Admin(broker.bootstrap) as admin:
        assert not admin.scheduled(TOPIC).messages
    assert Counter(each.value for each in read_all(broker.bootstrap)) == expected


@pytest.mark.thorough
def test_each_message_arrives_once_and_in_order_although_the_broker_is_killed_again_and_again(
    broker: BrokerProcess,
) -> None:
    create_topic(broker.bootstrap, partitions=PARTITIONS)
    draw = random.Random(60)
    stopping = threading.Event()
    ahead = send_ahead(broker.bootstrap, 6_000, 14_000)
    sent: Counter[bytes] = Counter()

    def send() -> None:
        producer = zhumq.Producer(
            broker.bootstrap, settings={"message.timeout.ms": 120_000, "linger.ms": 20}
        )
        number = 0
        while not stopping.is_set():
            value = b"%d" % number
            sent[value] += 1
            delay = None if number % 4 == 0 else draw.random() * 3
            producer.send(TOPIC, value, key=value, delay=delay)
            number += 1
            time.sleep(0.002)  # The pace of the load; nothing waits for it.
        producer.flush(120)

    sending = threading.Thread(target=send)
    sending.start()
    for _ in range(KILLS):
        goal = len(sent) + draw.randrange(200, 600)
        wait_for(lambda goal=goal: len(sent) >= goal, "messages are sent")  # type: ignore[misc]
        broker.kill()
        broker.start()
    stopping.set()
    sending.join()
    sent += ahead
    wait_for_messages(broker.bootstrap, len(sent), partitions=PARTITIONS)
    with zhumq.Admin(broker.bootstrap) as admin:
        wait_for(lambda: not admin.scheduled(TOPIC).messages, "nothing is pending")
    found = read_all(broker.bootstrap, partitions=PARTITIONS)
    assert Counter(each.value for each in found) == sent
    assert_in_due_order(found)
    assert all(each.timestamp_ms >= (each.due_ms or 0) for each in found)
