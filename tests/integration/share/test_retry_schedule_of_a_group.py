"""The retry schedule of a group: a message that fails comes again by it, and not by the broker's backoff."""

import pytest

import zhumq
from zhumq.admin.errors import AdminError
from zhumq.admin.settings import alter_group_settings, group_settings
from zhumq.testing.broker import broker

HOUR_MS = "3600000"
# With the broker's own backoff, the test would wait for an hour.
SETTINGS = {"delivery.backoff.ms": HOUR_MS, "delivery.backoff.max.ms": HOUR_MS}


def test_a_message_comes_again_by_the_schedule_of_its_group() -> None:
    with broker(settings=SETTINGS) as running, zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
        alter_group_settings(admin, "billing", {"zhumq.retry.schedule": "10ms,50ms"})
        assert group_settings(admin, "billing")["zhumq.retry.schedule"].value == "10ms,50ms"
        with zhumq.Producer(running.bootstrap) as producer:
            producer.send("orders", b"one")
        with zhumq.Consumer(
            "orders",
            group="billing",
            mode="ptp-shared",
            bootstrap=running.bootstrap,
            auto_ack=False,
        ) as consumer:
            counts = []
            for message in consumer:
                counts.append(message.delivery_count)
                if len(counts) == 4:
                    message.ack()
                    break
                message.nack("not yet")
        assert counts == [1, 2, 3, 4]


def test_what_is_no_schedule_is_refused() -> None:
    with broker() as running, zhumq.Admin(running.bootstrap) as admin:
        with pytest.raises(AdminError, match="'soon' is no time"):
            alter_group_settings(admin, "billing", {"zhumq.retry.schedule": "soon"})
        assert group_settings(admin, "billing")["zhumq.retry.schedule"].value == ""
