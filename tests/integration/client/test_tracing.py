"""Spans of producers and consumers, and the context that travels between them in the headers."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from client_support import until
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import zhumq
import zhumq.aio
from zhumq import Admin, Tracing
from zhumq.client.errors import HandlerFailed, RequestFailed
from zhumq.testing.broker import RunningBroker


class Spans:
    """A provider whose finished spans can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")
        self.middleware = [Tracing(self.provider)]

    def named(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The finished spans of this name, when there are so many."""
        found: list[ReadableSpan] = until(lambda: self._named(name, count))
        assert len(found) == count
        return found

    def _named(self, name: str, count: int) -> list[ReadableSpan]:
        spans = [each for each in self._exporter.get_finished_spans() if each.name == name]
        return spans if len(spans) >= count else []


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def span_id(span: ReadableSpan) -> int:
    return span.get_span_context().span_id  # type: ignore[union-attr]


def test_the_span_of_a_handler_is_a_child_of_the_span_of_its_send(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    spans = Spans()
    with (
        spans.tracer.start_as_current_span("request") as request,
        zhumq.Producer(bootstrap, middleware=spans.middleware) as producer,
    ):
        producer.send("orders", b"chair", headers={"traceparent": "stale", "own": "kept"})
    handled: list[zhumq.Task] = []
    inside: list[trace.SpanContext] = []

    def handle(task: zhumq.Task) -> None:
        inside.append(trace.get_current_span().get_span_context())
        handled.append(task)

    zhumq.Worker("orders", handle, group="g", bootstrap=bootstrap, middleware=spans.middleware).run(
        until=lambda: bool(handled)
    )
    (sent,) = spans.named("send orders")
    (processed,) = spans.named("process orders")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(sent) == request.get_span_context().span_id
    assert parent_of(processed) == span_id(sent)
    assert inside == [processed.get_span_context()]
    assert sent.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.body.size": 5,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert processed.attributes is not None
    assert processed.attributes["messaging.kafka.offset"] == 0
    names = [name for name, _ in handled[0].headers]
    assert sorted(names) == ["own", "traceparent"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_loop_works_inside_of_the_span_of_its_message(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    spans = Spans()
    with zhumq.Producer(bootstrap, middleware=spans.middleware) as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number, partition=0)
    sent = {
        span.attributes["messaging.kafka.offset"]: span for span in spans.named("send orders", 3)
    }  # type: ignore[index]

    def note(offset: int, inside: list[Any]) -> None:
        with spans.tracer.start_as_current_span(f"work {offset}"):
            inside.append(offset)

    def read() -> None:
        inside: list[Any] = []
        with zhumq.Consumer("orders", bootstrap=bootstrap, middleware=spans.middleware) as consumer:
            for message in consumer:
                note(message.offset, inside)
                if len(inside) == 3:
                    break

    async def read_async(kind: Any, **options: Any) -> None:
        inside: list[Any] = []
        async with kind(
            "orders", bootstrap=bootstrap, middleware=spans.middleware, **options
        ) as consumer:
            async for message in consumer:
                note(message.offset, inside)
                if len(inside) == 3:
                    break

    read()
    asyncio.run(read_async(zhumq.aio.Consumer))
    asyncio.run(read_async(zhumq.PushConsumer, mode="psb"))
    processed = {span_id(span): span for span in spans.named("process orders", 9)}
    for offset in range(3):
        for work in spans.named(f"work {offset}", 3):
            parent = processed[parent_of(work)]  # type: ignore[index]
            assert parent_of(parent) == span_id(sent[offset])
    assert not trace.get_current_span().get_span_context().is_valid


def test_async_sends_and_handlers_keep_the_context_of_their_task(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    spans = Spans()
    handled: list[zhumq.Task] = []

    async def handle(task: zhumq.Task) -> None:
        await asyncio.sleep(0)
        with spans.tracer.start_as_current_span("work"):
            handled.append(task)

    async def run() -> None:
        async with zhumq.aio.Producer(bootstrap, middleware=spans.middleware) as producer:

            async def request(number: int) -> None:
                with spans.tracer.start_as_current_span(f"request {number}"):
                    await producer.send("orders", b"%d" % number)

            await asyncio.gather(*(request(number) for number in range(5)))
        worker = zhumq.aio.Worker(
            "orders", handle, group="g", bootstrap=bootstrap, middleware=spans.middleware
        )
        await worker.run(until=lambda: len(handled) == 5)

    asyncio.run(run())
    sent = {parent_of(each): span_id(each) for each in spans.named("send orders", 5)}
    processed = {parent_of(each): span_id(each) for each in spans.named("process orders", 5)}
    work = {parent_of(each) for each in spans.named("work", 5)}
    requests = [spans.named(f"request {number}")[0] for number in range(5)]
    assert {processed[sent[span_id(each)]] for each in requests} == work
    assert len(work) == 5


def test_errors_are_on_the_spans(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    spans = Spans()
    with zhumq.Producer(bootstrap, middleware=spans.middleware) as producer:
        producer.send("orders", b"x", partition=9)
        with pytest.raises(RequestFailed, match=r"1 messages were not sent: .*no partition 9"):
            producer.flush()
        producer.send("orders", b"y", partition=0)
    failed, sent = spans.named("send orders", 2)
    assert (failed.status.status_code, sent.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    assert "no partition 9" in str(failed.status.description)
    assert [event.name for event in failed.events] == ["exception"]

    def handle(task: zhumq.Task) -> None:
        raise RuntimeError("no chairs")

    with pytest.raises(HandlerFailed):
        zhumq.Worker(
            "orders", handle, group="g", bootstrap=bootstrap, retries=0, middleware=spans.middleware
        ).run()
    (processed,) = spans.named("process orders")
    assert processed.status.description == "RuntimeError: no chairs"

    def read() -> None:
        with zhumq.Consumer("orders", bootstrap=bootstrap, middleware=spans.middleware) as consumer:
            for _ in consumer:
                raise KeyError("in the loop")

    with pytest.raises(KeyError):
        read()
    *_, last = spans.named("process orders", 2)
    assert last.status.status_code is StatusCode.ERROR


def test_a_message_without_or_with_a_broken_context_begins_a_trace(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with zhumq.Producer(bootstrap) as producer:
        producer.send("orders", b"x", partition=0)
        producer.send("orders", b"x", partition=0, headers={"traceparent": b"\xff\x00"})
        producer.send("orders", b"x", partition=0, headers={"traceparent": None})
    spans = Spans()
    with zhumq.Consumer("orders", bootstrap=bootstrap, middleware=spans.middleware) as consumer:
        for _, message in zip(range(3), consumer, strict=False):
            assert message.value == b"x"
    assert [each.parent for each in spans.named("process orders", 3)] == [None] * 3


def test_a_missing_extra_is_one_line_with_the_command() -> None:
    program = (
        "import sys, zhumq\nsys.modules['opentelemetry'] = None\n"
        "try:\n    zhumq.Tracing()\nexcept zhumq.client.errors.ExtraMissing as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "Tracing needs opentelemetry-api: pip install 'zhumq[tracing]'\n"
