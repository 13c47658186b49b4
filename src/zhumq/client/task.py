"""A message as handlers and transactional consumers receive it."""

from typing import Any, NamedTuple

import confluent_kafka


class Task(NamedTuple):
    """A message as the handler receives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


def task_of(message: Any) -> Task:
    """Convert a message of librdkafka."""
    kind, timestamp_ms = message.timestamp()
    return Task(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )


def is_transient(error: Any) -> bool:
    """Whether librdkafka recovers from this error by itself."""
    return error.retriable() or error.code() in (
        confluent_kafka.KafkaError._PARTITION_EOF,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    )
