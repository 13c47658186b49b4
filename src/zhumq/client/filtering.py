"""Filters in the client: for messages of Kafka's Fetch, which returns whole batches."""

from collections.abc import Callable
from typing import Any

import confluent_kafka

from zhumq.filters.columns import MessageColumns
from zhumq.filters.filter import compile_filter

# Whether a message of librdkafka passes.
MessageTest = Callable[[Any], bool]


def message_test(text: str) -> MessageTest | None:
    """The test of a filter; None if every message passes. Raises ValueError, which shows the place of an error."""
    compiled = compile_filter(text)
    if compiled is None:
        return None

    def passes(message: Any) -> bool:
        kind, timestamp_ms = message.timestamp()
        columns = MessageColumns(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=-1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            key=message.key(),
            value=message.value(),
            headers=message.headers() or (),
        )
        return bool(compiled.select(columns))

    return passes
