"""A message as handlers and transactional consumers receive it."""

from types import GenericAlias
from typing import Any, Generic, NamedTuple

import confluent_kafka

from zhumq.client.message import K, V


class Task(NamedTuple, Generic[V, K]):
    """A message as the handler receives it. Its value and key are bytes, or what the worker's serializers make of
    them: `Task[Order]`, `Task[Order, str]`."""

    topic: str
    partition: int
    offset: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None

    @classmethod
    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)  # As in `message.Typed`.


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
