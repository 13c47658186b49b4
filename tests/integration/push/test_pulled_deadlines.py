"""A pulling consumer extends the deadlines of waiting messages, not of those its program has polled."""

import pytest
from push_support import new_topic, run, send, until

from zhumq import Admin, Consumer, Message
from zhumq.client import pulled
from zhumq.testing.broker import RunningBroker

ACK_TIMEOUT_MS = 4_000


def polled(consumer: Consumer) -> Message:
    found: list[Message] = []
    while not found:  # the deadline is the test's
        found = consumer.poll(1.0)
    (message,) = found
    return message


@pytest.mark.thorough
def test_a_message_that_was_not_polled_yet_does_not_time_out(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, [b"held", b"waits"], partitions=2)
    with (
        Admin(running.bootstrap) as admin,
        Consumer(
            topic,
            group="slow",
            mode="ptp-shared",
            bootstrap=running.bootstrap,
            ack_timeout_ms=ACK_TIMEOUT_MS,
            auto_ack=False,
        ) as consumer,
    ):
        held = polled(consumer)
        # The message that the program polled and did not answer is delivered again ...
        run(until(lambda: any(each.redelivered for each in admin.sessions("slow"))))
        waited = polled(consumer)
        while waited.partition == held.partition:
            waited.release()
            waited = polled(consumer)
        # ... and the other one, which is as old, is still held by this consumer.
        assert waited.delivery_count == 1
        waited.ack()

        def lag() -> list[int | None]:
            positions = admin.subscription_groups("slow")["slow"].partitions
            return [each.lag for each in positions if each.partition == waited.partition]

        run(until(lambda: lag() == [0]))


@pytest.mark.thorough
def test_a_program_that_stops_polling_releases_waiting_messages(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulled, "POLL_PAUSE_SECONDS_MAX", 1.0)
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, [b"held", b"waits"], partitions=2)
    options = {"group": "idle", "mode": "ptp-shared", "bootstrap": running.bootstrap}
    with (
        Consumer(topic, auto_ack=False, ack_timeout_ms=60_000, **options) as idle,  # type: ignore[arg-type]
        Consumer(topic, auto_ack=False, **options) as other,  # type: ignore[arg-type]
    ):
        held = polled(idle)
        given = polled(other)
        assert given.partition != held.partition
        assert given.delivery_count == 1, "a message that was not polled has not failed"
        given.ack()
        held.ack()
