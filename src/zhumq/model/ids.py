"""Identifiers: topic partitions, offsets, epochs, broker and producer ids, principals, internal topics."""

import uuid
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
Principal = NewType("Principal", str)  # the user behind a connection, as Kafka writes it

NO_PRODUCER_ID = ProducerId(-1)
ANONYMOUS = Principal("User:ANONYMOUS")
ZERO_UUID = uuid.UUID(int=0)

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
TRANSACTION_STATE_TOPIC = "__transaction_state"
HALF_MESSAGES_TOPIC = "__half_messages"
DELAYED_MESSAGES_TOPIC = "__delayed_messages"
INTERNAL_TOPICS = frozenset(
    {
        CONSUMER_OFFSETS_TOPIC,
        DELAYED_MESSAGES_TOPIC,
        HALF_MESSAGES_TOPIC,
        SHARE_GROUP_STATE_TOPIC,
        TRANSACTION_STATE_TOPIC,
    }
)


class TopicPartition(NamedTuple):
    """A topic and a partition number; its text form is the name of the partition's folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
