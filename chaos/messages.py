"""Encodes a value of the history in a message."""

from confluent_kafka import Message

from chaos.clients import partition_name
from chaos.history import Entry


def content(value: int, padding_bytes: int) -> bytes:
    """The value and padding, so that messages have many sizes."""
    return b"%d:%b" % (value, b"." * padding_bytes)


def entry_of(message: Message) -> Entry:
    """The partition, offset and value of a message."""
    topic, partition, data = message.topic(), message.partition(), message.value()
    assert topic is not None, "a message comes from a topic"
    assert partition is not None, "a message comes from a partition"
    assert data is not None, "producers send no tombstones"
    value = int(bytes(data).partition(b":")[0])
    return Entry(partition_name(topic, partition), message.offset(), value)
