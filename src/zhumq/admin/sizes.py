"""Sizes of partitions on the disks of the brokers, and the disks themselves."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """The bytes of a replica on the disk of its broker."""

    topic: str
    partition: int
    broker: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A data folder of a broker, and the disk that it is on."""

    broker: int
    folder: str
    size_bytes: int  # of all replicas in it
    total_bytes: int | None  # of the disk; None, as is the next: the broker does not know
    usable_bytes: int | None


def replica_sizes(
    connection: ClusterConnection, topic: str, partitions: list[int]
) -> list[ReplicaSize]:
    """The replicas of a topic's partitions on all brokers that answer, by partition and broker."""
    found = sizes_by_replica(connection, {topic: partitions})
    return [
        ReplicaSize(topic=name.topic, partition=name.partition, broker=broker, size_bytes=size)
        for (name, broker), size in sorted(found.items())
    ]


def sizes_by_replica(
    connection: ClusterConnection, topics: Mapping[str, list[int]]
) -> dict[tuple[TopicPartition, int], int]:
    """The bytes of the replicas of these partitions, by partition and broker."""
    asked = [DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items()]
    return {
        (TopicPartition(each.name, part.partition_index), broker): part.partition_size
        for broker, answer in _answers(connection, DescribeLogDirsRequest(topics=asked))
        for result in answer.results
        for each in result.topics
        for part in each.partitions
    }


def topic_sizes(connection: ClusterConnection) -> dict[str, int]:
    """The bytes of all replicas of each topic, on all brokers that answer."""
    found: Counter[str] = Counter()
    for _, answer in _answers(connection, DescribeLogDirsRequest(topics=None)):
        for result in answer.results:
            for each in result.topics:
                found[each.name] += sum(part.partition_size for part in each.partitions)
    return dict(found)


def data_folders(connection: ClusterConnection) -> list[DataFolder]:
    """The data folders of all brokers."""
    return [
        DataFolder(
            broker=broker,
            folder=result.log_dir,
            size_bytes=sum(
                part.partition_size for each in result.topics for part in each.partitions
            ),
            total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
            usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        )
        for broker, answer in _answers(connection, DescribeLogDirsRequest(topics=None))
        for result in answer.results
    ]


def _answers(
    connection: ClusterConnection, request: DescribeLogDirsRequest
) -> list[tuple[int, DescribeLogDirsResponse]]:
    """A broker answers for itself alone."""
    answers = []
    for broker, address in connection.broker_addresses().items():
        answer = connection.request(ApiKey.DESCRIBE_LOG_DIRS, request, address=address)
        if answer.error_code != ErrorCode.NONE:
            name = ErrorCode(answer.error_code).name
            raise Refused(f"cannot describe the data folders of broker {broker}: {name}", code=name)
        answers.append((broker, answer))
    return answers
