"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from collections import Counter
from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.model.errors import BrokerError, ErrorCode, OffsetOutOfRange
from zhumq.model.isolation import Isolation
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from zhumq.protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager

# Special timestamps of ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_UNKNOWN: Final = -1
_TO_THE_HIGH_WATERMARK: Final = -1


class OffsetsHandler:
    """Looks up offsets in logs, and deletes records below an offset."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    def list_offsets(
        self, _context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        isolation = Isolation.of(request.isolation_level)
        asked = Counter(
            (topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        response = ListOffsetsResponse()
        for topic in request.topics:
            answered = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answered)
            for partition in topic.partitions:
                if asked[topic.name, partition.partition_index] == 1:
                    answer = self._list_offset(topic.name, partition, isolation)
                else:
                    # As in Kafka: a partition that is twice in a request is refused.
                    answer = ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.INVALID_REQUEST,
                        timestamp=_UNKNOWN,
                        offset=_UNKNOWN,
                    )
                answered.partitions.append(answer)
        return response

    def _list_offset(
        self, topic: str, asked: ListOffsetsPartition, isolation: Isolation
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            timestamp=_UNKNOWN,
            offset=_UNKNOWN,
            leader_epoch=_UNKNOWN,
        )
        try:
            partition = self._replicas.partition(topic, asked.partition_index)
            partition.check_leader_epoch(asked.current_leader_epoch)
            found = _locate(partition, asked.timestamp, isolation)
        except BrokerError as reason:
            answer.error_code = reason.code
            return answer
        if found is not None:
            answer.timestamp, answer.offset, answer.leader_epoch = found
        return answer

    def offset_for_leader_epoch(
        self, _context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(result)
            for asked in topic.partitions:
                answer = EpochEndOffset(
                    partition=asked.partition, leader_epoch=_UNKNOWN, end_offset=_UNKNOWN
                )
                result.partitions.append(answer)
                try:
                    partition = self._replicas.partition(topic.topic, asked.partition)
                    partition.check_leader_epoch(asked.current_leader_epoch)
                except BrokerError as reason:
                    answer.error_code = reason.code
                    continue
                epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
                answer.leader_epoch, answer.end_offset = epoch, end_offset
        return response

    def delete_records(
        self, _context: RequestContext, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        response = DeleteRecordsResponse()
        for topic in request.topics:
            result = DeleteRecordsTopicResult(name=topic.name)
            response.topics.append(result)
            for asked in topic.partitions:
                answer = DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=_UNKNOWN
                )
                result.partitions.append(answer)
                try:
                    partition = self._replicas.partition(topic.name, asked.partition_index)
                    partition.check_leads()
                    answer.low_watermark = _delete_before(partition, asked.offset)
                except BrokerError as reason:
                    answer.error_code = reason.code
        return response


def _locate(
    partition: Partition, timestamp: int, isolation: Isolation
) -> tuple[int, int, int] | None:
    """Timestamp, offset and leader epoch for a requested timestamp; None: there is no such record."""
    if timestamp == LATEST:
        return _UNKNOWN, partition.end_offset(isolation), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return _UNKNOWN, start, partition.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # There is no tiered storage, so there is no such offset.
        return None
    if timestamp == MAX_TIMESTAMP:
        found = partition.max_timestamp_offset()
    else:
        found = partition.offset_for_timestamp(timestamp)
    # As in Kafka: a record that this consumer cannot read yet is not found.
    is_visible = found is not None and found.offset < partition.end_offset(isolation)
    return found if is_visible else None


def _delete_before(partition: Partition, offset: int) -> int:
    if offset == _TO_THE_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"{partition.topic_partition}: cannot delete up to {offset},"
            f" records end at {partition.high_watermark}"
        )
    return partition.delete_records_before(offset)
