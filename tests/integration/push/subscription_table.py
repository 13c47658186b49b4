"""Reads a subscription by pull or by push, so that one table of cases covers both."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from push_support import AT_ONCE, run

from zhumq import Consumer, Message, Producer, PushConsumer

SECONDS_MAX = 60.0
POLL_SECONDS = 0.05

Answers = Callable[[Message], str]


class Seen(NamedTuple):
    partition: int
    offset: int
    delivery_count: int


def ack(message: Message) -> str:
    del message
    return "ack"


def read(
    how: str,
    bootstrap: str,
    topics: Any,
    *,
    count: int,
    answers: Answers = ack,
    **subscription: Any,
) -> list[Seen]:
    """The first messages of a subscription in order of arrival, each answered as `answers` returns."""
    seen: list[Seen] = []

    def take(messages: list[Message]) -> None:
        for message in messages:
            if len(seen) < count and not message.is_stale:
                seen.append(Seen(message.partition, message.offset, message.delivery_count))
                getattr(message, answers(message))()

    deadline = time.monotonic() + SECONDS_MAX

    def is_unfinished() -> bool:
        assert time.monotonic() < deadline, f"only {seen} arrived"
        return len(seen) < count

    async def pushed() -> None:
        async with PushConsumer(topics, bootstrap=bootstrap, auto_ack=False, **subscription) as it:
            while is_unfinished():
                take(await it.poll(POLL_SECONDS))

    if how == "push":
        run(pushed(), SECONDS_MAX)
    else:
        with Consumer(topics, bootstrap=bootstrap, auto_ack=False, **subscription) as consumer:
            while is_unfinished():
                take(consumer.poll(POLL_SECONDS))
    return seen


@contextmanager
def reading(how: str, bootstrap: str, topics: Any, **subscription: Any) -> Iterator[None]:
    """A consumer that is connected during the block, and holds what is delivered to it."""
    ready, over = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def pushed() -> None:
        async with PushConsumer(topics, bootstrap=bootstrap, auto_ack=False, **subscription) as it:
            while not await it.poll(POLL_SECONDS):
                pass
            ready.set()
            await asyncio.to_thread(over.wait)

    def pulled() -> None:
        with Consumer(topics, bootstrap=bootstrap, auto_ack=False, **subscription) as consumer:
            while not consumer.poll(POLL_SECONDS):
                pass
            ready.set()
            over.wait()

    def work() -> None:
        try:
            run(pushed(), SECONDS_MAX) if how == "push" else pulled()
        except BaseException as error:
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(SECONDS_MAX)
        assert not failures, failures
        yield
    finally:
        over.set()
        thread.join(SECONDS_MAX)


@contextmanager
def sending(bootstrap: str, topic: str) -> Iterator[None]:
    """A producer that sends during the block."""
    over = threading.Event()

    def work() -> None:
        with Producer(bootstrap, settings=AT_ONCE) as producer:
            while not over.wait(POLL_SECONDS):
                producer.send(topic, b"later", partition=0)
                producer.flush()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(SECONDS_MAX)
