"""Request-reply on a real broker: callers at once, errors, time-outs, late replies, restarts, topics that are gone."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from client_support import SECONDS_MAX, until

from zhumq import Admin, Caller, Consumer, Producer, Service, Task
from zhumq.client.call_headers import CALL_HEADER, ReplyAddress, reply_headers
from zhumq.client.caller import REPLY_TOPIC
from zhumq.client.errors import CallFailed, CallTimedOut, TooManyCalls
from zhumq.testing.broker import RunningBroker, broker

STUCK_SERVICE = Path(__file__).with_name("stuck_service.py")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as running_:
        yield running_


@contextmanager
def serving(
    running: RunningBroker, topic: str, handler: Callable[[Task], bytes | None], processors: int = 8
) -> Iterator[Service]:
    """A service in a thread until the end of the block."""
    with Admin(running.bootstrap) as admin:
        if topic not in admin.topics():
            admin.create_topic(topic, partitions=2)
    service = Service(
        topic, handler, group=f"g-{topic}", bootstrap=running.bootstrap, processors=processors
    )
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def double(task: Task) -> bytes:
    return b"%d" % (2 * int(task.value or b""))


def test_callers_in_threads_and_processes_of_their_own_get_their_own_replies(
    running: RunningBroker,
) -> None:
    with (
        serving(running, "double", double),
        Caller(running.bootstrap) as first,
        Caller(running.bootstrap) as second,
        ThreadPoolExecutor(8) as threads,
    ):
        calls = {
            number: threads.submit(
                (first, second)[number % 2].call, "double", b"%d" % number, timeout=SECONDS_MAX
            )
            for number in range(100)
        }
        assert {number: int(call.result() or 0) for number, call in calls.items()} == {
            number: 2 * number for number in range(100)
        }
        assert first.pending == second.pending == 0


def test_many_calls_of_one_thread_are_under_way_at_once(running: RunningBroker) -> None:
    """The first handler waits for another: one call after the other would never end."""
    another = threading.Event()

    def handle(task: Task) -> bytes | None:
        if task.value == b"0":
            assert another.wait(SECONDS_MAX)
        another.set()
        return task.value

    with serving(running, "meet", handle), Caller(running.bootstrap) as caller:
        calls = [caller.begin("meet", b"%d" % each, timeout=SECONDS_MAX) for each in range(40)]
        assert [each.result() for each in calls] == [b"%d" % each for each in range(40)]


def test_an_error_in_the_handler_is_raised_by_the_call(running: RunningBroker) -> None:
    with serving(running, "strict", double) as service, Caller(running.bootstrap) as caller:
        with pytest.raises(CallFailed, match=r"^strict: ValueError: invalid literal .* b'six'$"):
            caller.call("strict", b"six", timeout=SECONDS_MAX)
        assert caller.call("strict", b"6", timeout=SECONDS_MAX) == b"12"
        assert (service.counts.failed, service.counts.handled) == (1, 1)


def test_a_reply_without_a_value_is_a_reply(running: RunningBroker) -> None:
    with serving(running, "silent", lambda _: None), Caller(running.bootstrap) as caller:
        assert caller.call("silent", None, timeout=SECONDS_MAX) is None


def test_a_reply_that_cannot_be_sent_is_an_error_of_the_call(running: RunningBroker) -> None:
    def reply(task: Task) -> bytes:
        return b"x" * 5_000_000 if task.value == b"large" else 7  # type: ignore[return-value]

    with serving(running, "odd", reply), Caller(running.bootstrap) as caller:
        for value, reason in ((b"large", "RequestFailed: .*size too large"), (b"", "TypeError: ")):
            with pytest.raises(CallFailed, match=f"^odd: {reason}"):
                caller.call("odd", value, timeout=SECONDS_MAX)


def test_without_a_service_a_call_times_out_and_a_late_service_drops_it(
    running: RunningBroker,
) -> None:
    with Admin(running.bootstrap) as admin:
        admin.create_topic("late", partitions=1)
    handled: list[bytes | None] = []
    with Caller(running.bootstrap) as caller:
        with pytest.raises(CallTimedOut, match=r"^no reply from 'late' within 0.2 s: does a "):
            caller.call("late", b"1", timeout=0.2)
        with serving(running, "late", lambda task: handled.append(task.value)) as service:
            assert caller.call("late", b"2", timeout=SECONDS_MAX) is None
            assert (service.counts.expired, handled) == (1, [b"2"])


def test_a_late_reply_is_ignored(running: RunningBroker) -> None:
    go_on = threading.Event()

    def reply(task: Task) -> bytes | None:
        if task.value == b"slow":
            go_on.wait(SECONDS_MAX)
        return task.value

    with serving(running, "slow", reply) as service, Caller(running.bootstrap) as caller:
        assert (
            caller.call("slow", b"first", timeout=SECONDS_MAX) == b"first"
        )  # The service is ready.
        slow = caller.begin("slow", b"slow", timeout=2)
        with pytest.raises(CallTimedOut):
            slow.result(SECONDS_MAX)
        go_on.set()
        until(lambda: service.counts.handled == 2)
        # The late reply comes before this one if it is in the same partition, as it is.
        assert caller.call("slow", b"quick", timeout=SECONDS_MAX) == b"quick"
        assert caller.pending == 0


def test_a_caller_that_restarts_ignores_the_replies_to_the_one_before(
    running: RunningBroker,
) -> None:
    with serving(running, "again", double):
        for number in range(3):
            with Caller(running.bootstrap) as caller:
                caller.begin("again", b"%d" % (100 + number), timeout=SECONDS_MAX)
                # Left before the reply, or after it.
        with Caller(running.bootstrap) as caller:
            assert caller.call("again", b"7", timeout=SECONDS_MAX) == b"14"


def test_a_service_that_restarts_serves_what_was_sent_meanwhile(running: RunningBroker) -> None:
    with Caller(running.bootstrap) as caller:
        with serving(running, "restarted", double):
            assert caller.call("restarted", b"1", timeout=SECONDS_MAX) == b"2"
        waiting = caller.begin("restarted", b"2", timeout=SECONDS_MAX)
        with serving(running, "restarted", double):
            assert waiting.result(SECONDS_MAX) == b"4"


def test_calls_are_bounded(running: RunningBroker) -> None:
    with Admin(running.bootstrap) as admin:
        admin.create_topic("unserved", partitions=1)
    with Caller(running.bootstrap, pending_max=2) as caller:
        waiting = [caller.begin("unserved", b"", timeout=SECONDS_MAX) for _ in range(2)]
        with pytest.raises(TooManyCalls):
            caller.call("unserved", b"")
    for each in waiting:
        with pytest.raises(CallFailed, match=r"no reply: close\(\) was called"):
            each.result(SECONDS_MAX)
    with pytest.raises(CallFailed, match=r"this caller is closed: close\(\) was called"):
        caller.call("unserved", b"")


@pytest.mark.parametrize("timeout", [0, -1, 3_601, float("nan")])
def test_a_timeout_that_is_none_is_refused(running: RunningBroker, timeout: float) -> None:
    with Caller(running.bootstrap) as caller:
        with pytest.raises(ValueError, match=r"is not between 0 and 3600 s"):
            caller.call("double", b"", timeout=timeout)
        assert caller.pending == 0


def test_a_reply_to_a_topic_that_is_gone_is_dropped_and_the_topic_is_not_created(
    running: RunningBroker,
) -> None:
    with serving(running, "homeless", double) as service:
        with Producer(running.bootstrap) as producer:
            for topic, partition in (("gone", 0), (REPLY_TOPIC, 999), ("__consumer_offsets", 0)):
                address = ReplyAddress(call_id=b"c", topic=topic, partition=partition)
                producer.send("homeless", b"1", headers=address.headers())
        with Caller(running.bootstrap) as caller:
            assert caller.call("homeless", b"2", timeout=SECONDS_MAX) == b"4"
        until(lambda: service.counts.handled == 4)
        # The internal topic is no address, so there is nothing to deliver.
        until(lambda: service.counts.undelivered == 2)
    with Admin(running.bootstrap) as admin:
        assert "gone" not in admin.topics()


def test_a_message_without_an_address_is_handled_or_becomes_a_dead_letter(
    running: RunningBroker,
) -> None:
    with serving(running, "stray", double) as service:
        with Producer(running.bootstrap) as producer:
            producer.send("stray", b"1")
            producer.send("stray", b"x")
        until(lambda: service.counts.handled == 1)
        with Consumer("stray.dlq", group="g", bootstrap=running.bootstrap) as consumer:
            message = next(iter(consumer))
        assert message.value == b"x"
        assert (dict(message.headers)["zhumq.reason"] or b"").startswith(b"ValueError: invalid")


def test_made_up_replies_change_nothing(running: RunningBroker) -> None:
    with serving(running, "honest", double), Caller(running.bootstrap) as caller:
        assert caller.call("honest", b"1", timeout=SECONDS_MAX) == b"2"
        with Admin(running.bootstrap) as admin:
            partitions = admin.topics()[REPLY_TOPIC]
        with Producer(running.bootstrap) as producer:
            for partition in range(partitions):
                producer.send(REPLY_TOPIC, b"999", partition=partition)
                producer.send(REPLY_TOPIC, b"999", headers=reply_headers(b"?"), partition=partition)
                producer.send(REPLY_TOPIC, None, headers={CALL_HEADER: None}, partition=partition)
        assert caller.call("honest", b"2", timeout=SECONDS_MAX) == b"4"


@pytest.mark.thorough
def test_a_caller_whose_reply_topic_is_deleted_says_so_and_a_new_one_goes_on(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with serving(zhumq_broker, "double", double), Admin(bootstrap) as admin:
        admin.create_topic("unserved", partitions=1)
        with Caller(bootstrap, reply_topic="mine") as caller:
            waiting = caller.begin("unserved", b"", timeout=SECONDS_MAX)
            admin.delete_topic("mine")
            with pytest.raises(CallFailed, match="the reply topic 'mine' was deleted: make a new"):
                waiting.result(SECONDS_MAX)
            with pytest.raises(CallFailed, match="this caller is closed: the reply topic 'mine' w"):
                caller.call("double", b"1")
        with Caller(bootstrap, reply_topic="mine") as caller:
            assert caller.call("double", b"2", timeout=SECONDS_MAX) == b"4"


@pytest.mark.thorough
def test_a_request_of_a_killed_service_is_handled_by_another(tmp_path: Path) -> None:
    settings = {
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with broker(data_dir=tmp_path, settings=settings) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("double", partitions=1)
        with Caller(running.bootstrap) as caller:
            stuck = subprocess.Popen(
                [sys.executable, STUCK_SERVICE, running.bootstrap, "double", "g-double"],
                stdout=subprocess.PIPE,
            )
            try:
                waiting = caller.begin("double", b"21", timeout=SECONDS_MAX)
                assert stuck.stdout is not None
                assert stuck.stdout.readline() == b"21\n"
            finally:
                stuck.kill()
                stuck.communicate()
            with serving(running, "double", double):
                assert waiting.result(SECONDS_MAX) == b"42"
