"""Stages delayed messages: follows the logs of their topics, and takes the deferred batches to their shard."""

import asyncio
import logging
from itertools import islice
from typing import Final

from zhumq.coordinators.changed_settings import ChangedSettings
from zhumq.coordinators.delay_routes import RoutedDelays
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.delays.persisted import Position, headers_of, size_of
from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import BrokerError, CoordinatorNotAvailable, ErrorCode
from zhumq.model.ids import INTERNAL_TOPICS, TopicPartition
from zhumq.protocol.messages.delays import DelayedRecord, StageDelayedRequest
from zhumq.records.batch import batches
from zhumq.records.deferred import DeferredBatch, deferred_in
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

READ_BYTES: Final = 256 << 10
STAGED_AT_ONCE_MAX: Final = 500  # messages in one request
STAGED_BYTES_MAX: Final = 1 << 20  # in one request, unless one message is larger
# A position without messages is stored after so many offsets: a new leader reads them again.
UNSTORED_OFFSETS_MAX: Final = 50_000
RETRY_SECONDS: Final = 0.2


class DelayIntake:
    """One task for each partition that this broker leads and whose topic sets delay.enable."""

    def __init__(
        self, replicas: ReplicaManager, delays: RoutedDelays, staging_topic: InternalTopic
    ) -> None:
        self._replicas = replicas
        self._delays = delays
        self._staging_topic = staging_topic
        self._settings = ChangedSettings()
        self._tasks: dict[TopicPartition, tuple[Partition, asyncio.Task[None]]] = {}
        replicas.watch_leadership(self._on_leadership)

    def apply(self, image: ClusterImage) -> None:
        """The settings of topics may have changed. Called after the partitions have got them."""
        for topic_partition in self._settings.apply(image):
            partition = self._replicas.find(*topic_partition)
            if partition is not None:
                self._follow_or_not(partition, leads=partition.is_current)

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for topic_partition in tuple(self._tasks):
            self._unfollow(topic_partition)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_leadership(self, topic_partition: TopicPartition, leads: bool, _epoch: int) -> None:
        partition = self._replicas.find(*topic_partition)
        if partition is None:
            self._unfollow(topic_partition)
        else:
            self._follow_or_not(partition, leads=leads)

    def _follow_or_not(self, partition: Partition, *, leads: bool) -> None:
        """Without delay.enable any more, it goes on: messages from before are still to be staged."""
        topic_partition = partition.topic_partition
        if topic_partition.topic in INTERNAL_TOPICS:
            return  # log.delay.enable may be the default of all topics.
        known = self._tasks.get(topic_partition)
        if known is not None and (not leads or known[0] is not partition):
            self._unfollow(topic_partition)
            known = None
        if leads and partition.takes_delays and known is None:
            intake = _PartitionIntake(partition, self._delays, self._staging_topic)
            task = asyncio.get_running_loop().create_task(
                intake.run(), name=f"delay-intake-{topic_partition}"
            )
            self._tasks[topic_partition] = partition, task

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        known = self._tasks.pop(topic_partition, None)
        if known is not None:
            known[1].cancel()


class _Moved(Exception):
    """The shard has another position: the intake continues there."""


class _PartitionIntake:
    """Each deferred batch is staged once: the shard stores the position behind the messages together with them, and takes
    only what begins at its position."""

    def __init__(
        self, partition: Partition, delays: RoutedDelays, staging_topic: InternalTopic
    ) -> None:
        self._partition = partition
        self._delays = delays
        self._staging_topic = staging_topic
        self._position = Position(-1)  # of the shard
        self._read_offset = 0
        self._unpaired: DeferredBatch | None = None  # whose companion is not read yet
        # What is staged next, and up to where that goes.
        self._records: list[DelayedRecord] = []
        self._bytes = 0
        self._until = Position(-1)

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except _Moved:
                continue
            except BrokerError as reason:
                logger.info(
                    "%s: delayed messages wait: %s", self._partition.topic_partition, reason
                )
            except Exception:
                logger.exception(
                    "%s: delayed messages are not staged", self._partition.topic_partition
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        await self._staging_topic.ensure()
        # A shard that knows nothing of the partition begins here: no deferred batch can be in the log yet.
        self._position = await self._ask(None, Position(self._partition.log_end_offset))
        self._partition.accept_deferred()
        self._begin_at(self._position.offset)
        woken = asyncio.Event()
        tail = self._partition.observe(self._read_offset, on_records=woken.set, on_closed=woken.set)
        try:
            while True:
                woken.clear()
                await self._drain()
                await woken.wait()
        finally:
            tail.close()

    def _begin_at(self, offset: int) -> None:
        self._read_offset = offset
        self._unpaired = None
        self._records.clear()
        self._bytes = 0

    async def _drain(self) -> None:
        """Stage everything that is visible."""
        partition = self._partition
        if self._read_offset < partition.log_start_offset:
            logger.warning(
                "%s: offsets %d to %d were deleted before their delayed messages were staged",
                partition.topic_partition,
                self._read_offset,
                partition.log_start_offset - 1,
            )
            self._begin_at(partition.log_start_offset)
        while self._read_offset < partition.high_watermark:
            part = partition.read(self._read_offset, READ_BYTES)
            for batch in batches(part.read_bytes()):
                header = batch.header
                unpaired, self._unpaired = self._unpaired, None
                if unpaired is not None and unpaired.has_companion(header):
                    await self._take(unpaired, header.next_offset)
                if header.is_control:
                    deferred = deferred_in(batch)
                    if deferred is not None and deferred.needs_companion:
                        self._unpaired = deferred
                    elif deferred is not None:
                        await self._take(deferred, header.next_offset)
            if part.next_offset <= self._read_offset:
                break
            self._read_offset = part.next_offset
            await asyncio.sleep(0)
        if self._records:
            await self._stage(self._until)
        elif self._unpaired is None and (
            self._read_offset - self._position.offset >= UNSTORED_OFFSETS_MAX
        ):
            await self._stage(Position(self._read_offset))

    async def _take(self, deferred: DeferredBatch, next_offset: int) -> None:
        first = deferred.control.base_offset
        skipped = self._position.skipped if self._position.offset == first else 0
        for place, each in enumerate(islice(deferred.records(), skipped, None), skipped + 1):
            record = each.record
            delayed = DelayedRecord(
                due_ms=each.due_ms,
                offset=each.offset,
                key=record.key,
                value=record.value,
                headers=headers_of(record),
            )
            size = size_of((delayed,))
            if self._records and self._bytes + size > STAGED_BYTES_MAX:
                await self._stage(Position(first, place - 1))
            self._records.append(delayed)
            self._bytes += size
            self._until = Position(first, place)
            if len(self._records) >= STAGED_AT_ONCE_MAX:
                await self._stage(self._until)
        self._until = Position(next_offset)

    async def _stage(self, until: Position) -> None:
        answered = await self._ask(self._position, until)
        self._position = answered
        if answered != until:
            raise _Moved
        self._records.clear()
        self._bytes = 0

    async def _ask(self, begins: Position | None, until: Position) -> Position:
        partition = self._partition
        topic, index = partition.topic_partition
        begins = begins or Position(-1)
        answer = await self._delays.stage(
            StageDelayedRequest(
                topic=topic,
                topic_id=partition.topic_id,
                partition=index,
                from_offset=begins.offset,
                from_skipped=begins.skipped,
                next_offset=until.offset,
                next_skipped=until.skipped,
                records=self._records if begins.offset >= 0 else [],
            )
        )
        if answer.error_code != ErrorCode.NONE:
            raise CoordinatorNotAvailable(
                f"the shard does not serve: {ErrorCode(answer.error_code).name}"
            )
        return Position(answer.next_offset, answer.skipped)
