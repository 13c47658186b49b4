"""A round of tasks: what its handlers send is kept per task, in the order of the tasks."""

import pytest

from zhumq.client.outputs import Output, Outputs
from zhumq.client.task import Task
from zhumq.client.worker_rounds import Round


def task(offset: int) -> Task:
    return Task("t", 0, offset, None, b"%d" % offset, (), None)


def output(topic: str, value: bytes) -> Output:
    return Output(topic, value, None, None, None, None)


def test_outputs_are_in_the_order_of_the_tasks() -> None:
    tasks = [task(0), task(1)]

    def handle(each: Task, outputs: Outputs) -> None:
        outputs.send("out", each.value)
        outputs.send("more", each.value)

    current = Round(tasks, handle)
    assert not current.wait(0)
    for each in reversed(tasks):
        current.handle(each)
        current.mark_done(each)
    assert current.wait(0)
    assert not current.is_abandoned
    assert current.outputs() == [
        output("out", b"0"),
        output("more", b"0"),
        output("out", b"1"),
        output("more", b"1"),
    ]


def test_an_attempt_that_fails_sends_nothing() -> None:
    attempts: list[int] = []

    def handle(each: Task, outputs: Outputs) -> None:
        attempts.append(each.offset)
        outputs.send("out", b"%d" % len(attempts))
        if len(attempts) == 1:
            raise ValueError

    current = Round([task(0)], handle)
    with pytest.raises(ValueError):
        current.handle(task(0))
    current.handle(task(0))
    current.mark_done(task(0))
    assert current.outputs() == [output("out", b"2")]


def test_a_dead_letter_replaces_what_the_handler_sent() -> None:
    current = Round([task(0)], lambda each, outputs: outputs.send("out", each.value))
    current.handle(task(0))
    current.send_to_dead_letters(task(0), [("reason", "x")])
    assert current.outputs() == [Output("t.dlq", b"0", None, [("reason", "x")], None, None)]


def test_an_abandoned_round_handles_nothing_more() -> None:
    handled: list[Task] = []
    current = Round([task(0), task(1)], lambda each, outputs: handled.append(each))
    current.mark_abandoned(task(0))
    assert current.wait(0)
    current.handle(task(1))
    current.mark_done(task(1))
    assert handled == []
    assert current.is_abandoned
