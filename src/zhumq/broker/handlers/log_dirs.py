"""DescribeLogDirs: how much disk each partition takes, and how much there is."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom


class LogDirsHandler:
    """Describes the data folder, which is a broker's only log directory."""

    def __init__(self, replicas: ReplicaManager, data_dir: Path, disk_room: DiskRoom) -> None:
        self._replicas = replicas
        self._data_dir = data_dir
        self._disk_room = disk_room

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs}

    def describe_log_dirs(
        self, _context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        by_topic: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        for partition in self._requested(request):
            name, index = partition.topic_partition
            by_topic[name].append(
                DescribeLogDirsPartition(partition_index=index, partition_size=partition.size_bytes)
            )
        # Counted as the watermarks count: what is kept for root is neither used nor free.
        usage = self._disk_room.usage
        result = DescribeLogDirsResult(
            log_dir=str(self._data_dir),
            topics=[
                DescribeLogDirsTopic(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ],
            total_bytes=usage.total_bytes,
            usable_bytes=usage.free_bytes,
        )
        return DescribeLogDirsResponse(results=[result])

    def _requested(self, request: DescribeLogDirsRequest) -> Iterable[Partition]:
        if request.topics is None:
            return self._replicas
        places = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        found = (self._replicas.find(*each) for each in sorted(places))
        return (each for each in found if each is not None)
