"""Middleware: the order in which it runs, and what its own errors do."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from zhumq import Middleware, OutgoingMessage, ReceivedMessage
from zhumq.client.middleware import around_handling, begin_send
from zhumq.client.task import Task

TASK: Task = Task("orders", 0, 0, None, b"x", (), None)


class Noted(Middleware):
    """Notes what runs, and fails where it is asked to."""

    def __init__(self, name: str, notes: list[str], *, fails: str = "") -> None:
        self._name = name
        self._notes = notes
        self._fails = fails

    @contextmanager
    def around_send(self, message: OutgoingMessage) -> Iterator[None]:
        yield from self._run(message.topic)

    @contextmanager
    def around_handling(self, message: ReceivedMessage) -> Iterator[None]:
        yield from self._run(message.topic)

    def _run(self, topic: str) -> Iterator[None]:
        self._step(f"enter {topic}")
        try:
            yield
        except ValueError as error:
            self._notes.append(f"{self._name} saw {error}")
            raise
        finally:
            self._step(f"leave {topic}")

    def _step(self, step: str) -> None:
        self._notes.append(f"{self._name} {step}")
        if step.split(maxsplit=1)[0] == self._fails:
            raise RuntimeError(f"{self._name} fails")


def outgoing() -> OutgoingMessage:
    return OutgoingMessage("orders", b"x", None, [], None)


def test_the_first_is_the_outermost() -> None:
    notes: list[str] = []
    with around_handling([Noted("a", notes), Noted("b", notes)], TASK):
        notes.append("handler")
    assert notes == [
        "a enter orders",
        "b enter orders",
        "handler",
        "b leave orders",
        "a leave orders",
    ]


def test_an_error_of_the_handler_passes_through_all_of_them() -> None:
    notes: list[str] = []

    def handle() -> None:
        with around_handling([Noted("a", notes), Noted("b", notes)], TASK):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        handle()
    assert [each for each in notes if "saw" in each] == ["b saw no", "a saw no"]


def test_one_that_fails_at_a_send_refuses_it_and_the_others_are_left() -> None:
    notes: list[str] = []
    with pytest.raises(RuntimeError, match="b fails"):
        begin_send([Noted("a", notes), Noted("b", notes, fails="enter")], outgoing())
    assert notes == ["a enter orders", "b enter orders", "a leave orders"]


def test_one_that_fails_after_a_send_is_logged_and_the_others_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes: list[str] = []
    end = begin_send([Noted("a", notes), Noted("b", notes, fails="leave")], outgoing())
    end(None)
    assert notes[-2:] == ["b leave orders", "a leave orders"]
    assert "a middleware failed after a message to 'orders'" in caplog.text


def test_a_message_that_is_not_sent_shows_its_error(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    begin_send([Noted("a", notes)], outgoing())(ValueError("lost"))
    assert notes == ["a enter orders", "a saw lost", "a leave orders"]
    assert caplog.text == ""


def test_without_overrides_nothing_runs() -> None:
    begin_send([Middleware()], outgoing())(None)
    with around_handling([Middleware()], TASK):
        pass
