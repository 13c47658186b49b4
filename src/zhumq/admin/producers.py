"""Producers: those that write now, with their rates, and those that partitions remember by their ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.admin.leaders import Leader, by_leader, find_leaders
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from zhumq.protocol.messages.writing_producers import WritingProducersRequest

AT_ONCE_MAX: Final = 500  # partitions in one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that the leader of a partition knows."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int  # the timestamp of its last message
    coordinator_epoch: int  # of its last marker; -1: none
    transaction_start: int | None  # the first offset of its open transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingProducer:
    """A producer and a partition that it writes to, as the leader of the partition has seen it.

    The leader looks at some of the requests of a producer that sends many: then the counts are estimates.
    """

    client_id: str
    principal: str
    host: str
    port: int
    producer_id: int  # -1: neither idempotent nor transactional
    producer_epoch: int
    transactional_id: str | None
    kind: str  # plain, idempotent or transactional
    topic: str
    partition: int
    requests: int  # since the broker has seen it first
    messages: int
    size_bytes: int
    request_rate: float  # a second, in the last five seconds or so
    message_rate: float
    byte_rate: float
    first_ms: int
    last_ms: int  # when it was last seen
    broker_id: int


_SAME_FIELDS: Final = tuple(
    each.name for each in fields(WritingProducer) if each.name != "broker_id"
)


def list_writing(
    connection: ClusterConnection, *, topics: Sequence[str] | None = None
) -> list[WritingProducer]:
    """The producers that write to the brokers, or to some topics, those that were seen last first. Each broker keeps 2,000
    pairs of a producer and a partition. Topics that may not be read are left out."""
    request = WritingProducersRequest(topics=None if topics is None else list(topics))
    found = [
        WritingProducer(broker_id=broker_id, **{name: getattr(each, name) for name in _SAME_FIELDS})
        for broker_id, address in connection.broker_addresses().items()
        for each in connection.request(ApiKey.WRITING_PRODUCERS, request, address=address).producers
    ]
    return sorted(found, key=lambda each: each.last_ms, reverse=True)


def list_producers(
    connection: ClusterConnection, topic: str, *, partition: int | None = None
) -> list[ActiveProducer]:
    """The producers of a topic's partitions that have leaders, by partition and id. Raises NotFound."""
    leaders = find_leaders(connection, topic, partition)
    found = [
        each
        for leader, partitions in by_leader(leaders)
        for each in producers_of(connection, leader, partitions)
    ]
    return sorted(found, key=lambda each: (each.partition, each.producer_id))


def producers_of(
    connection: ClusterConnection, leader: Leader, partitions: list[tuple[str, int]]
) -> Iterator[ActiveProducer]:
    """The producers of partitions that a broker leads."""
    for first in range(0, len(partitions), AT_ONCE_MAX):
        topics: dict[str, TopicRequest] = {}
        for name, index in partitions[first : first + AT_ONCE_MAX]:
            topics.setdefault(name, TopicRequest(name=name)).partition_indexes.append(index)
        request = DescribeProducersRequest(topics=list(topics.values()))
        answer = connection.request(ApiKey.DESCRIBE_PRODUCERS, request, address=leader.address)
        for topic in answer.topics:
            for part in topic.partitions:
                _check(f"{topic.name}-{part.partition_index}", part.error_code)
                for each in part.active_producers:
                    is_open = each.current_txn_start_offset >= 0
                    yield ActiveProducer(
                        topic=topic.name,
                        partition=part.partition_index,
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        last_sequence=each.last_sequence,
                        last_ms=each.last_timestamp,
                        coordinator_epoch=each.coordinator_epoch,
                        transaction_start=each.current_txn_start_offset if is_open else None,
                    )


def _check(name: str, code: int) -> None:
    if code != ErrorCode.NONE:
        kind = Unavailable if code in RETRIABLE_CODES else Refused
        reason = ErrorCode(code).name
        raise kind(f"cannot describe the producers of {name}: {reason}", code=reason)
