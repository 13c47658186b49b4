"""Who writes what: producers of each kind, seen from the administration."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from zhumq.admin.client import Admin
from zhumq.admin.producers import WritingProducer, list_writing
from zhumq.testing.broker import broker

SECONDS_MAX = 30.0


def test_producers_of_each_kind_are_listed_with_where_they_write(tmp_path: Path) -> None:
    settings = {"num.partitions": "2"}
    with broker(data_dir=tmp_path, settings=settings) as running, Admin(running.bootstrap) as admin:
        base = {"bootstrap.servers": running.bootstrap}
        plain = Producer({**base, "client.id": "shop", "linger.ms": 0})
        for partition in (0, 1, 1):
            plain.produce("orders", b"12345", partition=partition)
            assert plain.flush(SECONDS_MAX) == 0
        numbered = Producer({**base, "client.id": "bank", "enable.idempotence": True})
        numbered.produce("payments", b"x", partition=0)
        assert numbered.flush(SECONDS_MAX) == 0
        transactional = Producer({**base, "client.id": "mover", "transactional.id": "moves"})
        transactional.init_transactions(SECONDS_MAX)
        transactional.begin_transaction()
        transactional.produce("orders", b"x", partition=0)
        transactional.commit_transaction(SECONDS_MAX)

        found = {(each.client_id, each.topic, each.partition): each for each in list_writing(admin)}
        users = {place: each for place, each in found.items() if not place[1].startswith("__")}
        assert set(users) == {
            ("shop", "orders", 0),
            ("shop", "orders", 1),
            ("bank", "payments", 0),
            ("mover", "orders", 0),
        }
        shop, bank = users["shop", "orders", 1], users["bank", "payments", 0]
        assert (shop.kind, shop.producer_id, shop.messages, shop.requests) == ("plain", -1, 2, 2)
        assert shop.size_bytes > 10
        assert (shop.principal, shop.host) == ("User:ANONYMOUS", "127.0.0.1")
        assert shop.first_ms <= shop.last_ms <= time.time_ns() // 1_000_000
        assert (bank.kind, bank.producer_epoch) == ("idempotent", 0)
        assert bank.producer_id >= 0
        mover = users["mover", "orders", 0]
        assert (mover.kind, mover.transactional_id) == ("transactional", "moves")
        assert [each.client_id for each in list_writing(admin, topics=["payments"])] == ["bank"]


@pytest.mark.thorough
def test_a_rate_is_there_while_a_producer_writes_and_gone_afterwards(
    tmp_path: Path,
) -> None:
    with broker(data_dir=tmp_path) as running, Admin(running.bootstrap) as admin:
        producer = Producer({"bootstrap.servers": running.bootstrap, "client.id": "busy"})

        def wait_for_rate(*, above_zero: bool) -> WritingProducer:
            deadline = time.monotonic() + SECONDS_MAX
            while True:
                if above_zero:
                    producer.produce("t", b"x")
                    assert producer.flush(SECONDS_MAX) == 0
                found = list_writing(admin, topics=["t"])
                if found and (found[0].message_rate > 0) is above_zero:
                    return found[0]
                assert time.monotonic() < deadline, found
                time.sleep(0.05)

        busy = wait_for_rate(above_zero=True)
        assert busy.byte_rate > busy.message_rate
        assert wait_for_rate(above_zero=False).messages == busy.messages
