"""Follows `_schemas` where this broker leads it, and says which ids of schemas are registered."""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from typing import Final

from zhumq.model.errors import NotLeaderOrFollower, OffsetOutOfRange
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.records.batch import RecordBatch
from zhumq.records.sections import AbortedTransactions, whole_batches
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.schemas.log_records import TOPIC, decode
from zhumq.schemas.subject_ids import SubjectId, SubjectIds

logger = logging.getLogger(__name__)

PLACE: Final = TopicPartition(TOPIC, 0)
READ_BYTES: Final = 256 * 1024
READ_COMMITTED: Final = Isolation.READ_COMMITTED


class _Read:
    """What one leadership of the partition has read of it."""

    def __init__(self, partition: Partition) -> None:
        self.ids = SubjectIds()
        self.next_offset = partition.log_start_offset
        self.of = _identity(partition)


class SchemaIds:
    """Reads the partition when it is asked, up to its end at that time: an id that a registry has given out before the
    question is found."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._read: _Read | None = None
        self._reading = asyncio.Lock()

    async def registered(self, asked: Iterable[SubjectId]) -> set[SubjectId]:
        """Raises BrokerError where this broker does not lead the partition."""
        async with self._reading:
            partition = self._replicas.partition(*PLACE)
            read = self._read
            if read is None or read.of != _identity(partition):
                read = self._read = _Read(partition)
            await self._catch_up(partition, read)
            return read.ids.registered(asked)

    async def _catch_up(self, partition: Partition, read: _Read) -> None:
        # Not before it has every committed record: an id would seem not to be registered.
        if not partition.is_current:
            raise NotLeaderOrFollower(f"{PLACE} does not serve yet")
        end_offset = partition.end_offset(READ_COMMITTED)
        while read.next_offset < end_offset:
            try:
                part = partition.read(read.next_offset, READ_BYTES, isolation=READ_COMMITTED)
            except OffsetOutOfRange:
                self._read = None  # Records were deleted: the next question begins anew.
                raise
            aborted = AbortedTransactions(
                (each.producer_id, each.first_offset) for each in part.aborted
            )
            for batch in whole_batches(part.read_bytes()):
                if batch.header.last_offset >= read.next_offset and not aborted.hides(batch):
                    self._replay(read, batch)
            read.next_offset = max(part.next_offset, read.next_offset + 1)
            await asyncio.sleep(0)  # Others are served between two reads.

    def _replay(self, read: _Read, batch: RecordBatch) -> None:
        for record in batch.records():
            try:
                read.ids.replay(decode(record.key, record.value))
            except ValueError as reason:
                logger.warning("%s: offset %d is skipped: %s", PLACE, record.offset, reason)


def _identity(partition: Partition) -> tuple[uuid.UUID, int]:
    return partition.topic_id, partition.leader_epoch
