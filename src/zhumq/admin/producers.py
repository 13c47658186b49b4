"""Producers that have written to partitions with an id of their own: idempotent and transactional ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.admin.leaders import Leader, by_leader, find_leaders
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import DescribeProducersRequest, TopicRequest

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
