"""Half messages and kill -9: of producers at any step, and of the broker between any two steps of a move."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashing_broker import POINTS
from half_support import (
    HERE,
    SETTINGS,
    Orders,
    Shop,
    ShopProcess,
    listed,
    read_committed,
    wait_for,
    wait_for_values,
)

import zhumq
from zhumq.client.errors import HalfMessageDecided
from zhumq.testing.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KILLS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", settings=SETTINGS)
    process.start()
    with zhumq.Admin(process.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    yield process
    process.kill()


def test_a_killed_producer_is_decided_for_by_another_one_of_its_group(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """Killed before its own transaction: rolled back. Killed after it: committed."""
    database = tmp_path / "orders.db"
    ids = {}
    for stops_after in ("prepare", "order", "commit"):
        shop = ShopProcess(broker.bootstrap, database, stops_after)
        ids[stops_after] = shop.line()
        shop.kill()
    orders = Orders(database)
    asked: list[str] = []

    def check(half: zhumq.HalfMessage) -> bool:
        asked.append(half.id)
        return orders.has(half.id)

    with zhumq.HalfMessageProducer(broker.bootstrap, group="shop", check=check):
        wait_for(lambda: not listed(broker.bootstrap), "all half messages are decided")
    assert ids["commit"] not in asked
    # An order and its message: never one without the other.
    expected = Counter(item.encode() for item in orders.items())
    assert len(expected) == 2
    wait_for_values(broker.bootstrap, "orders", expected)


def test_after_the_last_silence_a_message_is_rolled_back_and_listed(broker: BrokerProcess) -> None:
    checks: list[int] = []

    def does_not_know(half: zhumq.HalfMessage) -> None:
        checks.append(half.check)

    with zhumq.HalfMessageProducer(broker.bootstrap, group="shop", check=does_not_know) as producer:
        half = producer.prepare("orders", "an order")
        wait_for(lambda: listed(broker.bootstrap)[half.id].state == "given-up", "it is given up")
        assert checks == [1, 2, 3]
        with pytest.raises(HalfMessageDecided, match="after 3 checks"):
            half.commit()
        broker.kill()
        broker.start()
        entry = listed(broker.bootstrap)[half.id]
        assert (entry.state, entry.checks) == ("given-up", 3)
        assert "3 checks" in entry.reason
        assert not read_committed(broker.bootstrap, "orders")


def test_a_prepared_message_survives_the_broker(broker: BrokerProcess) -> None:
    with zhumq.HalfMessageProducer(broker.bootstrap, group="shop", check=None) as producer:
        kept = producer.prepare("orders", "kept")
        dropped = producer.prepare("orders", "dropped")
        broker.kill()
        broker.start()
        assert listed(broker.bootstrap).keys() == {kept.id, dropped.id}
        assert not read_committed(broker.bootstrap, "orders")
        kept.commit()
        dropped.rollback()
        wait_for_values(broker.bootstrap, "orders", {b"kept": 1})
        broker.kill()
        broker.start()
        kept.commit()  # again, and answered the same
        with pytest.raises(HalfMessageDecided):
            dropped.commit()
        assert read_committed(broker.bootstrap, "orders") == {b"kept": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_broker_killed_at_any_point_of_a_move_delivers_once(
    broker: BrokerProcess, point: str
) -> None:
    with zhumq.HalfMessageProducer(broker.bootstrap, group="shop", check=None) as producer:
        producer.prepare("orders", "before").commit()
        wait_for_values(broker.bootstrap, "orders", {b"before": 1})
        halves = [producer.prepare("orders", f"message {number}") for number in range(3)]
        other = producer.prepare("orders", "rolled back")
        broker.kill()
        usual = broker.program
        broker.program = (str(HERE / "crashing_broker.py"), point)
        broker.start()
        deciding = threading.Thread(target=lambda: [half.commit() for half in halves])
        deciding.start()
        wait_for(lambda: not broker.running, f"the broker dies at {point}")
        broker.kill()
        broker.program = usual
        broker.start()
        deciding.join()
        other.rollback()
        expected = Counter({b"before": 1} | {b"message %d" % number: 1 for number in range(3)})
        wait_for_values(broker.bootstrap, "orders", expected)
        wait_for(lambda: not listed(broker.bootstrap), "nothing is left")
        producer.prepare("orders", "after").commit()
        expected[b"after"] = 1
        wait_for_values(broker.bootstrap, "orders", expected)


@pytest.mark.thorough
def test_orders_and_messages_agree_although_the_broker_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    draw = random.Random(55)
    broker = BrokerProcess(
        tmp_path / "broker", settings=SETTINGS | {"half.message.check.max": "1000"}
    )
    broker.start()
    try:
        with zhumq.Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=3)
        orders = Orders(tmp_path / "orders.db")
        shop = Shop(broker.bootstrap, orders)
        shop.start()
        with zhumq.HalfMessageProducer(
            broker.bootstrap, group="shop", check=lambda half: orders.has(half.id), timeout=120
        ):
            for _ in range(KILLS):
                shop.wait_for_progress(draw.randrange(3, 25))
                broker.kill()
                broker.start()
            shop.wait_for_progress()
            shop.stop()
            wait_for(lambda: not listed(broker.bootstrap), "all half messages are decided")
            expected = Counter(item.encode() for item in orders.items())
            assert len(expected) > KILLS
            wait_for_values(broker.bootstrap, "orders", expected, partitions=3)
    finally:
        broker.kill()
