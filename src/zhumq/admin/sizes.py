"""Sizes of partitions on the disks of the brokers, and the disks themselves."""

from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.model.errors import ErrorCode
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
    asked = [DescribableLogDirTopic(topic=topic, partitions=partitions)]
    found = [
        ReplicaSize(
            topic=each.name,
            partition=part.partition_index,
            broker=broker,
            size_bytes=part.partition_size,
        )
        for broker, answer in _answers(connection, DescribeLogDirsRequest(topics=asked))
        for result in answer.results
        for each in result.topics
        for part in each.partitions
    ]
    return sorted(found, key=lambda each: (each.partition, each.broker))


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
