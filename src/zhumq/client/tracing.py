"""Tracing with OpenTelemetry: the context of a send travels in the headers of the message to its handler."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from zhumq.client.errors import ExtraMissing
from zhumq.client.middleware import Middleware, OutgoingMessage, ReceivedMessage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

SYSTEM: Final = "kafka"


class Tracing(Middleware):
    """Makes a span for every message that is sent and for every one that is handled. Needs `zhumq[tracing]`.

    The span of a send ends with the acknowledgement. Its context is in the headers of the message (`traceparent`, or
    what the program's propagator writes), and the span of the handling is its child, also in another program.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        """Without a provider it is OpenTelemetry's global one. Raises ExtraMissing."""
        try:
            from opentelemetry import context, propagate, trace  # noqa: PLC0415 (an extra)
        except ImportError:
            needed = "Tracing needs opentelemetry-api: pip install 'zhumq[tracing]'"
            raise ExtraMissing(needed) from None
        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("zhumq", tracer_provider=tracer_provider)

    @contextmanager
    def around_send(self, message: OutgoingMessage) -> Iterator[None]:
        span = self._tracer.start_span(
            f"send {message.topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes("send", message.topic, message.value),
        )
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        # A message that is sent on has the headers of the span that it was sent by before.
        message.headers[:] = [each for each in message.headers if each[0] not in carrier]
        message.headers.extend(carrier.items())
        with self._ended(span):
            yield
            _set_place(span, message.partition, message.offset)

    @contextmanager
    def around_handling(self, message: ReceivedMessage) -> Iterator[None]:
        carrier = {
            name.lower(): value.decode(errors="replace")
            for name, value in message.headers
            if value is not None
        }
        sent_in = self._propagate.extract(carrier)
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=sent_in,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_attributes("process", message.topic, message.value),
        )
        _set_place(span, message.partition, message.offset)
        token = self._context.attach(self._trace.set_span_in_context(span, sent_in))
        with self._ended(span):
            try:
                yield
            finally:
                # A loop may have gone on in another task, whose context knows nothing of this.
                if self._trace.get_current_span() is span:
                    self._context.detach(token)

    @contextmanager
    def _ended(self, span: "Span") -> Iterator[None]:
        """Ends the span at the end of the block, with the error if there is one."""
        try:
            yield
        except BaseException as error:
            span.record_exception(error)
            reason = f"{type(error).__name__}: {error}"
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))
            raise
        finally:
            span.end()


def _attributes(operation: str, topic: str, value: Any) -> dict[str, str | int]:
    """By OpenTelemetry's conventions for messaging."""
    found: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    if isinstance(value, bytes):
        found["messaging.message.body.size"] = len(value)
    return found


def _set_place(span: "Span", partition: int | None, offset: int | None) -> None:
    if partition is not None:
        span.set_attribute("messaging.destination.partition.id", str(partition))
    if offset is not None:
        span.set_attribute("messaging.kafka.offset", offset)
