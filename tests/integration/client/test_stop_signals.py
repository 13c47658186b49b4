"""SIGTERM and SIGINT: a worker finishes the message in hand, commits it, begins no other, and leaves the group."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from client_support import send

import zhumq
from zhumq import Admin
from zhumq.admin.groups import describe_group
from zhumq.client.stop_signals import stop_signals
from zhumq.testing.broker import RunningBroker

WORKER = Path(__file__).with_name("signalled.py")
SECONDS_MAX = 60


def start(kind: str, bootstrap: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, WORKER, kind, bootstrap, "jobs", "workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_signalled_worker_finishes_its_message_and_leaves(
    zhumq_broker: RunningBroker, kind: str, number: signal.Signals
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "jobs", 20)
    with start(kind, bootstrap) as process:
        assert line(process.stdout) == "begun 0"
        process.send_signal(number)
        assert line(process.stdout) == "stopping"
        printed, errors = process.communicate("go on\n", timeout=SECONDS_MAX)
    if (kind, number) == ("async", signal.SIGINT):
        # asyncio.run cancels its task at Ctrl-C, and raises KeyboardInterrupt when it has ended.
        assert printed.split("\n") == ["handled 0", ""]
        assert "KeyboardInterrupt" in errors
    else:
        assert printed.split("\n") == ["handled 0", "returned", ""]
        assert (process.returncode, errors) == (0, "")
    with Admin(bootstrap) as admin:
        group = describe_group(admin, "workers")
        assert group.members == ()
        assert [each.committed for each in group.offsets] == [1]


def test_an_exactly_once_worker_finishes_its_round(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "jobs", 3)
    with start("exactly-once", bootstrap) as process:
        assert line(process.stdout) == "begun 0"
        process.send_signal(signal.SIGTERM)
        assert line(process.stdout) == "stopping"
        printed, errors = process.communicate("go on\n", timeout=SECONDS_MAX)
    assert printed.startswith("handled 0\n")
    assert printed.endswith("returned\n")
    assert (process.returncode, errors) == (0, "")
    handled = printed.count("handled")
    with Admin(bootstrap) as admin:
        group = describe_group(admin, "workers")
        assert group.members == ()
        assert [each.committed for each in group.offsets] == [handled]


def test_a_second_signal_does_not_wait(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "jobs", 3)
    with start("sync", bootstrap) as process:
        assert line(process.stdout) == "begun 0"
        process.send_signal(signal.SIGTERM)
        assert line(process.stdout) == "stopping"
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS_MAX)
        assert process.returncode == -signal.SIGTERM


def test_a_program_keeps_its_own_handlers(zhumq_broker: RunningBroker) -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: arrived.append(number))
    try:
        with stop_signals() as has_signal:
            os.kill(os.getpid(), signal.SIGTERM)
            assert arrived == [signal.SIGTERM]
            assert not has_signal()
        worker = zhumq.Worker("jobs", lambda _: None, group="own", bootstrap=zhumq_broker.bootstrap)
        worker.run(until=lambda: True)
        os.kill(os.getpid(), signal.SIGTERM)
        assert arrived == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_handlers_are_as_before_after_a_run() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_signals() as has_signal:
        if before[1] == signal.default_int_handler:
            os.kill(os.getpid(), signal.SIGINT)
            assert has_signal()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
